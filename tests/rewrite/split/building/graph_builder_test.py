"""The main graph has copies for all shards, a shard's function those of its own, by their names."""

from __future__ import annotations

import tensorflow as tf

from tests.rewrite.split.run_step import split_step
from tests.rewrite.split.traced_steps import flat_step

BATCH, FEATURES = 5, 3


def loop(x):
    def body(i, y):
        return i + 1, tf.reshape(tf.tanh(tf.reshape(y, (BATCH * FEATURES,))), (BATCH, FEATURES))

    return tf.while_loop(lambda i, _: i < 2, body, (0, tf.reshape(x, (BATCH, FEATURES))))[1]


def sizes_of(nodes):
    """{Reshape: the sizes that it is given}."""
    value_of = {
        node.name: tf.make_ndarray(node.attr["value"].tensor).tolist()
        for node in nodes
        if node.op == "Const"
    }
    return {
        node.name: value_of[node.input[1].partition(":")[0]]
        for node in nodes
        if node.op == "Reshape"
    }


def test_an_op_of_a_step_and_of_a_loop_in_it():
    spec = tf.TensorSpec((BATCH, FEATURES), tf.float32, "x")
    flat = flat_step(loop, [spec], BATCH)
    _, split = split_step(flat, BATCH, 2, {"x:0": 0})
    graph_def = split.graph_def
    assert split.copies["Reshape"] == ["Reshape/shard_0", "Reshape/shard_1"]
    assert sizes_of(graph_def.node) == {
        "Reshape/shard_0": [3, FEATURES],
        "Reshape/shard_1": [2, FEATURES],
    }
    functions = {function.signature.name: function for function in graph_def.library.function}
    for shard, entries in enumerate((3, 2)):
        (copy,) = (node for node in graph_def.node if node.name == f"while/shard_{shard}")
        body = functions[copy.attr["body"].func.name]
        assert sizes_of(body.node_def) == {
            "body/while/Reshape": [entries * FEATURES],
            "body/while/Reshape_1": [entries, FEATURES],
        }


def test_shards_of_one_size_share_their_functions():
    spec = tf.TensorSpec((BATCH, FEATURES), tf.float32, "x")
    _, split = split_step(flat_step(loop, [spec], BATCH), BATCH, 3, {"x:0": 0})
    bodies = [
        node.attr["body"].func.name
        for node in split.graph_def.node
        if node.name.startswith("while/shard_")
    ]
    assert len(bodies) == 3 and bodies[0] == bodies[1] != bodies[2]

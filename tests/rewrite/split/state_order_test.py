"""A write that waits for a read by way of a shape alone still comes after it in a split step."""

import pytest
import tensorflow as tf

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.graph_view import GraphView
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.split.prove_split import ProofLimits, prove_split
from rewrite.split.split_model import split_model
from rewrite.split.state_order import with_state_order

v1 = tf.compat.v1
BATCH = 6


def counted_behind_a_read(shape_of):
    """A step that writes into a scale how many rows were scaled."""
    x = v1.placeholder(tf.float32, (BATCH, 3), "x")
    weight = v1.get_variable("weight", (3, 2), use_resource=True)
    scale = v1.get_variable("scale", (), use_resource=True)
    read = tf.raw_ops.ReadVariableOp(resource=scale.handle, dtype=tf.float32, name="read")
    rows = tf.tanh(x @ weight) * read
    count = tf.cast(shape_of(rows, x)[0], tf.float32)
    write = tf.raw_ops.AssignVariableOp(resource=scale.handle, value=count, name="write")
    with tf.control_dependencies([write]):
        return tf.reduce_mean(rows, name="loss")


def of_a_shape(rows, x):
    return tf.raw_ops.Shape(input=rows)


def of_a_late_constant(rows, x):
    with tf.control_dependencies([rows]):
        shape = tf.constant([BATCH, 3, 1])
    return tf.reduce_sum(tf.reshape(tf.exp(x), shape), [0, 1])


@pytest.mark.parametrize("shape", [of_a_shape, of_a_late_constant])
def test_a_write_waits_for_the_read(shape, tmp_path):
    with tf.Graph().as_default() as graph:
        loss = counted_behind_a_read(shape)
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    split = split_model(load(str(tmp_path / "model.pb"), LoadOptions(fetch=(loss.name,))), 2)
    assert len(split.step.copies["Tanh"]) == 2
    for made in (split.step.graph_def, split.source.split_graph):
        assert "read" in GraphView(made).ancestors(["write"])
    limits = ProofLimits(run_seconds=60.0)
    proof = prove_split(split.flat, split.properties, split.decisions, split.step, 2, limits)
    assert not proof.differing


@pytest.mark.parametrize("name", ["rnnlm", "transformer", "cifar10"])
def test_where_more_than_sizes_says_the_order_nothing_is_added(name, tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build(name, "tiny"), path)
    source = load(path, LoadOptions())
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    assert with_state_order(flat) is flat

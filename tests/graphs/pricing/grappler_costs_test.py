"""What Grappler says of an op, with all sizes that are known before the run."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.names import op_of
from graphs.pricing.grappler_costs import estimate, optimized, with_defaults
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _by_shape(x, w):
    return tf.reshape(tf.reshape(x, [-1, 8]) @ w, [tf.shape(x)[0], tf.shape(x)[1], 8])


def _softmax(x, w):
    rows = tf.reshape(x, [tf.shape(x)[0], -1, 2, 4])
    return tf.nn.softmax(tf.transpose(rows, [0, 2, 1, 3])) * w[0, 0]


def _slices_and_sums(x, w):
    one, other = tf.split(tf.concat([x, x + w[0]], 1), 2, 1)
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = tf.nn.conv2d_transpose(
            one[:, :, None] * w[0], w[None, None], [tf.shape(other)[0], 5, 1, 8], 1
        )
        y = tf.reduce_sum(y * y)
    return tape.gradient(y, w)


def _work(build, batch, said):
    step = tf.function(lambda x, w: tf.identity(build(x, w), "out")).get_concrete_function(
        tf.TensorSpec([said, 5, 8], name="x"), tf.TensorSpec([8, 8], name="w")
    )
    feeds = [TensorSpec("x:0", "float32", (batch, 5, 8)), TensorSpec("w:0", "float32", (8, 8))]
    flat = flatten(step.graph.as_graph_def(), feeds, ["out:0"])
    work = estimate(flat, infer(flat))
    assert not np.isnan(work.flops).any() and (work.flops >= 0.0).all()
    return work.flops.sum()


@pytest.mark.parametrize(
    ("build", "least"),
    [
        (lambda x, w: tf.tensordot(x, w, 1), 2 * 16 * 5 * 8 * 8),
        (_by_shape, 2 * 16 * 5 * 8 * 8),
        (_softmax, 16 * 5 * 8),
        (_slices_and_sums, 2 * 16 * 5 * 8 * 8),
    ],
)
def test_an_open_batch_is_priced_as_a_fixed_one(build, least):
    fixed = _work(build, 16, 16)
    assert fixed >= least
    # Where the batch is fixed, tracing leaves a few elementwise ops out.
    assert _work(build, 16, None) == pytest.approx(fixed, rel=0.06)


def test_a_size_that_a_run_decides_is_not_taken_for_one():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 64], name="x")
        w = v1.placeholder(tf.float32, [64, 64], name="w")
        tf.raw_ops.MatMul(a=x, b=w, name="product")
        tf.raw_ops.MatMul(a=w, b=w, name="known")
    flat = flatten(graph.as_graph_def(), [], ["product:0", "known:0"])
    properties = infer(flat)
    work = estimate(flat, properties)
    found = dict(zip([node.name for node in flat.graph_def.node], work.flops, strict=True))
    assert np.isnan(found["product"]) and found["known"] == 2 * 64**3
    assert not np.isnan(with_defaults(flat, properties, work).flops).any()


def test_what_is_run_is_what_grappler_leaves():
    def build(x, w):
        return tf.nn.relu(tf.identity(x @ w)) + tf.constant(2.0) * tf.constant(3.0)

    step = tf.function(lambda x, w: tf.identity(build(x, w), "out")).get_concrete_function(
        tf.TensorSpec([4, 8], name="x"), tf.TensorSpec([8, 8], name="w")
    )
    feeds = [TensorSpec("x:0", "float32", (4, 8)), TensorSpec("w:0", "float32", (8, 8))]
    flat = flatten(step.graph.as_graph_def(), feeds, ["out:0"])
    made = optimized(flat, infer(flat))
    ops = [node.op for node in made.node]
    assert "Mul" not in ops and ops.count("MatMul") == 1 and "Relu" in ops
    assert len(ops) < len(step.graph.as_graph_def().node)
    broken = flatten(step.graph.as_graph_def(), feeds, ["out:0"])
    next(node for node in broken.graph_def.node if node.op == "Relu").op = "NoSuchOp"
    assert optimized(broken, infer(flat)) is None


def test_several_outputs_of_one_op_are_returned():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8], name="x")
        tf.nn.top_k(x, 2, name="top")
    flat = flatten(graph.as_graph_def(), [TensorSpec("x:0", "float32", (8,))], ["top:0", "top:1"])
    made = optimized(flat, infer(flat)).node
    assert [node.op for node in made].count("_Retval") == len({*flat.fetches, "done"})
    assert len({node.name for node in made}) == len(made)


def test_ops_are_listed_as_a_run_lists_them():
    sizes = {"x": [4, 8], "w": [8, 8], "v": [8, 8], "b": [8]}
    with tf.Graph().as_default() as graph:
        x, w, v, b = (v1.placeholder(tf.float32, sizes[name], name) for name in sizes)
        hidden = tf.nn.relu(tf.nn.bias_add(x @ w, b))
        loss = tf.reduce_sum(tf.nn.bias_add(hidden @ v, b) ** 2)
        fetches = [each.name for each in (loss, *tf.gradients(loss, [w, v, b]))]
    feeds = [TensorSpec(f"{name}:0", "float32", tuple(sizes[name])) for name in sizes]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    made = optimized(flat, infer(flat))

    def body(*arguments):
        fed = dict(zip(sizes, arguments, strict=True))
        run = tf.graph_util.import_graph_def(graph.as_graph_def(), fed, fetches, name="")
        with tf.control_dependencies(run):
            return [*run, tf.constant(0)]

    step = v1.wrap_function(body, [tf.TensorSpec(size) for size in sizes.values()])
    values = [tf.ones(size) for size in sizes.values()]
    context.context().enable_graph_collection()
    step(*values)
    (ran,) = context.context().export_run_metadata().function_graphs
    context.context().disable_graph_collection()
    ran_users, made_users = map(_users, (ran.post_optimization_graph, made))
    both = ran_users.keys() & made_users.keys()
    assert len(both) >= 8
    assert {name: made_users[name] for name in both} == {name: ran_users[name] for name in both}


def _users(graph_def):
    """{op: those that use it, as they are listed}."""
    users = {}
    for node in graph_def.node:
        for name in node.input:
            users.setdefault(op_of(name), []).append(node.name)
    return {name: found for name, found in users.items() if len(found) > 1}

"""What units make: shapes through loops, lists and calls, for a batch that was open."""

import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.building.flatten import flatten
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _inferred(build, batch=3, width=4):
    """{name: shape} of a step that was traced for any batch."""
    step = tf.function(build).get_concrete_function(tf.TensorSpec([None, width], name="x"))
    feeds = [TensorSpec("x:0", "float32", (batch, width))]
    flat = flatten(step.graph.as_graph_def(), feeds, ["out:0"], open_conditionals=False)
    properties = shapes.infer(flat)
    return properties, properties.shape_of


def _loop(body, *start, **more):
    return tf.while_loop(
        lambda i, *_: i < 5, lambda i, *s: (i + 1, *body(i, *s)), (0, *start), **more
    )


def _keeps(x):
    return tf.identity(_loop(lambda i, y: (y + 1.0,), x)[1], "out")


def _grows(x):
    invariants = (tf.TensorShape([]), tf.TensorShape([None, 4]))
    grown = _loop(lambda i, y: (tf.concat([y, x], 0),), x, shape_invariants=invariants)
    return tf.identity(grown[1], "out")


def _fills_a_list(x):
    rows = tf.TensorArray(tf.float32, size=5, element_shape=[None, 4])
    made = _loop(lambda i, rows: (rows.write(i, x),), rows)
    return tf.identity(made[1].stack(), "out")


def _fills_a_list_of_the_batch(x, grows=False):
    rows = tf.TensorArray(tf.float32, tf.shape(x)[0], dynamic_size=grows, element_shape=[4])
    made = _loop(lambda i, rows: (rows.write(i, x[0]),), rows)
    return tf.identity(made[1].stack(), "out")


def _fills_a_list_that_grows(x):
    return _fills_a_list_of_the_batch(x, grows=True)


def _reads_a_list(x):
    rows = tf.TensorArray(tf.float32, size=5, element_shape=[None, 4]).unstack(tf.stack([x] * 5))
    return tf.identity(_loop(lambda i, y: (y + rows.read(i),), x)[1], "out")


def _hands_a_size_in(x):
    rows = tf.shape(x)[0]
    return tf.identity(_loop(lambda i, y: (tf.reshape(y, [rows, 4]),), x)[1], "out")


def _calls(x):
    function = tf.function(lambda y: tf.transpose(y), experimental_attributes={"_noinline": True})
    return tf.identity(function(x), "out")


def _one_of_two(x):
    return tf.identity(tf.cond(x[0, 0] > 0.0, lambda: x, lambda: x[:2]), "out")


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (_keeps, (3, 4)),
        (_grows, (-1, 4)),
        (_fills_a_list, (5, 3, 4)),
        (_fills_a_list_of_the_batch, (3, 4)),
        (_fills_a_list_that_grows, (-1, 4)),
        (_reads_a_list, (3, 4)),
        (_hands_a_size_in, (3, 4)),
        (_calls, (4, 3)),
        (_one_of_two, (-1, 4)),
    ],
)
def test_what_a_unit_makes_of_what_it_is_given(build, shape):
    _, shape_of = _inferred(build)
    assert shape_of["out"] == [shape]


def test_gradients_of_a_loop_are_as_large_as_what_they_are_of():
    """They pop shapes and states that the loop pushed."""

    def build(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = _loop(lambda i, y: (tf.tensordot(y, tf.ones([4, 4]), 1) * y,), x)[1]
        return tf.identity(tape.gradient(y, x), "out")

    properties, shape_of = _inferred(build)
    assert shape_of["out"] == [(3, 4)]
    assert not properties.unknown


def test_sizes_that_constants_fix_are_known():
    def build(x):
        rows, columns = tf.raw_ops.ShapeN(input=[x, tf.ones([2])], name="sizes")
        axes = tf.raw_ops.BroadcastGradientArgs(s0=rows, s1=columns, name="axes")
        return tf.add(tf.fill(rows, 1.0), tf.reduce_sum(x, axes.r1), name="out")

    _, shape_of = _inferred(build, width=2)
    assert shape_of["out"] == [(3, 2)]
    assert shape_of["axes"] == [(0,), (1,)]


@pytest.mark.parametrize(("grows", "shape"), [(False, (3, 4)), (True, (-1, 4))])
def test_loops_of_tensorflow_1(grows, shape):
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 4], name="x")
            (_grows if grows else _keeps)(x)
    finally:
        if was_v2:
            v1.enable_control_flow_v2()
    feeds = [TensorSpec("x:0", "float32", (3, 4))]
    assert shapes.infer_graph_def(graph.as_graph_def(), feeds).shape_of["out"] == [shape]

"""A graph in float64 computes what it did, and in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from rewrite.split.float64.convert import to_float64

v1 = tf.compat.v1


@pytest.mark.parametrize("layout", ["NHWC", "NDHWC"])
@pytest.mark.parametrize("is_training", [True, False])
def test_normalisation_written_out_is_what_the_kernels_compute(layout, is_training):
    shape = (4, 3, 3, 2) if layout == "NHWC" else (4, 2, 3, 3, 2)
    rng = np.random.default_rng(0)
    x, d_y = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    with tf.Graph().as_default() as graph:
        vectors = [tf.constant(rng.uniform(0.5, 2, 2), tf.float32) for _ in range(4)]
        inputs = v1.placeholder(tf.float32, shape, "x"), v1.placeholder(tf.float32, shape, "d_y")
        norm = tf.raw_ops.FusedBatchNormV3(
            x=inputs[0], scale=vectors[0], offset=vectors[1], mean=vectors[2],
            variance=vectors[3], epsilon=0.01, exponential_avg_factor=0.3, data_format=layout,
            is_training=is_training,
        )  # fmt: skip
        gradient = tf.raw_ops.FusedBatchNormGradV3(
            # TensorFlow leaves norm[3] and norm[4] unset for NDHWC, where it doesn't train.
            y_backprop=inputs[1], x=inputs[0], scale=vectors[0],
            reserve_space_1=norm[3] if is_training else vectors[2],
            reserve_space_2=norm[4] if is_training else vectors[3], reserve_space_3=norm[5],
            epsilon=0.01, data_format=layout, is_training=is_training,
        )  # fmt: skip
        fetches = [t.name for t in (*norm[:3], *gradient[:3])]
    check_same_in_float64(graph, fetches, {"x:0": x, "d_y:0": d_y})


def test_local_response_written_out_is_what_the_kernels_compute():
    x = np.random.default_rng(0).normal(size=(2, 3, 3, 7)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        inputs = v1.placeholder(tf.float32, x.shape, "x")
        y = tf.nn.lrn(inputs, 2, bias=0.9, alpha=0.3, beta=0.6)
        fetches = [y.name, tf.gradients(tf.reduce_sum(y * y), inputs)[0].name]
    check_same_in_float64(graph, fetches, {"x:0": x})


def test_ops_of_functions_and_without_a_kernel_are_float64_around():
    x = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)

    @tf.function
    def body(number, value):
        return number + 1, tf.image.resize(tf.tanh(value) * 0.5, [4, 4])

    with tf.Graph().as_default() as graph:
        inputs = v1.placeholder(tf.float32, x.shape, "x")
        looped = tf.raw_ops.StatelessWhile(
            input=[tf.constant(0), inputs],
            cond=tf.function(lambda n, v: n < 3).get_concrete_function(tf.constant(0), inputs),
            body=body.get_concrete_function(tf.TensorSpec((), tf.int32), inputs),
        )[1]
        fetches = [tf.identity(looped, "looped").name]
    check_same_in_float64(graph, fetches, {"x:0": x})


def test_functions_with_ops_that_have_no_outputs():
    @tf.function
    def checked(value):
        tf.debugging.assert_less(value, 9.0)
        return value * 2.0

    with tf.Graph().as_default() as graph:
        inputs = v1.placeholder(tf.float32, (2,), "x")
        fetches = [tf.identity(checked(inputs), "checked").name]
    check_same_in_float64(graph, fetches, {"x:0": np.ones(2, np.float32)})


def test_complex_numbers_are_of_two_float64():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        inputs = v1.placeholder(tf.float32, x.shape, "x")
        turned = tf.complex(inputs, tf.sin(inputs)) * tf.constant(0.6 + 0.8j, tf.complex64)
        loss = tf.reduce_sum(tf.abs(tf.signal.ifft(turned)) ** 2)
        fetches = [tf.math.real(turned).name, tf.gradients(loss, inputs)[0].name]
    wide = check_same_in_float64(graph, fetches, {"x:0": x})
    assert not set(wide.narrow_ops) & {"Complex", "Real", "Imag", "Mul", "ComplexAbs"}


def test_what_a_type_is_where_an_op_leaves_it_out():
    with tf.Graph().as_default() as graph:
        _ = v1.placeholder(tf.float32, (2,), "x") + tf.raw_ops.StatelessRandomUniform(
            shape=[2], seed=[1, 2]
        )
    graph_def = graph.as_graph_def()
    random = next(n for n in graph_def.node if n.op == "StatelessRandomUniform")
    del random.attr["dtype"]  # as a SavedModel leaves it out
    with tf.Graph().as_default() as loaded:
        v1.import_graph_def(to_float64(graph_def).graph_def, name="")
    assert loaded.get_tensor_by_name("add:0").dtype == tf.float64


def test_types_that_an_op_may_not_have_stay_narrow():
    features = {"a": tf.io.FixedLenFeature([1], tf.float32, [30.0])}
    with tf.Graph().as_default() as graph:
        parsed = tf.io.parse_example(tf.constant([b"", b""]), features)
        fetches = [tf.identity(parsed["a"], "parsed").name]
    check_same_in_float64(graph, fetches, {})


def check_same_in_float64(graph, fetches, feeds):
    values = []
    made = to_float64(graph.as_graph_def())
    for graph_def, dtype in ((graph.as_graph_def(), np.float32), (made.graph_def, np.float64)):
        with tf.Graph().as_default() as loaded, v1.Session(graph=loaded) as session:
            v1.import_graph_def(graph_def, name="")
            fed = {name: array.astype(dtype) for name, array in feeds.items()}
            values.append(session.run(fetches, fed))
            assert all(value.dtype == dtype for value in values[-1])
    for one, other in zip(*values, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return made

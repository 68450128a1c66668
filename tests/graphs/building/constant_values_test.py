"""Values that constants and static shapes fix."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.constant_values import ConstantValues, folded_nodes
from graphs.building.flatten import flatten
from graphs.building.shapes import infer, infer_graph_def
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _values(build):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [3, 5], name="x")
        unknown = v1.placeholder(tf.int32, [], name="unknown")
        tf.identity(build(x, unknown), name="out")
    graph_def = graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    return ConstantValues(nodes, infer_graph_def(graph_def))


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda x, unknown: tf.constant(7), 7),
        (lambda x, unknown: tf.shape(x)[1] * 2 - 1, 9),
        (lambda x, unknown: tf.shape(x)[1:2] // 2, 2),
        (lambda x, unknown: tf.maximum(tf.cast(tf.shape(x)[0], tf.int64), 4), 4),
        (lambda x, unknown: tf.constant(17) % 5, 2),
        (lambda x, unknown: tf.raw_ops.FloorMod(x=tf.constant(17), y=tf.constant(0)), None),
        (lambda x, unknown: tf.constant(2.0), None),
        (lambda x, unknown: tf.constant([1, 2]), None),
        (lambda x, unknown: unknown + 1, None),
    ],
)
def test_whole_numbers(build, value):
    assert _values(build).scalar("out") == value


def test_arrays():
    values = _values(lambda x, unknown: tf.shape(x) + 1)
    np.testing.assert_array_equal(values.value("out:0"), [4, 6])
    assert values.value("gone") is None


def test_a_value_that_is_used_twice_at_every_step_is_evaluated_once():
    """Doubled 60 times: without that the evaluation would take 2^60 steps."""

    def build(x, unknown):
        value = tf.constant(1, tf.int64)
        for _ in range(60):
            value = value + value
        return value

    assert _values(build).scalar("out") == 2**60


def test_what_is_made_of_constants_is_folded():
    """Not what is large, what has a state, what is fed, nor what reads an input."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [3, 4], name="x")
        given = tf.constant(2.0, name="given")
        scale = tf.raw_ops.Rsqrt(x=tf.raw_ops.AddV2(x=[1.0] * 4, y=1e-3, name="sum"), name="scale")
        rows = tf.raw_ops.Shape(input=x, name="rows")
        large = tf.raw_ops.Fill(dims=[1 << 22], value=1.0, name="large")
        small = tf.raw_ops.Sum(input=large, axis=[0], name="small")
        noise = tf.raw_ops.RandomUniform(shape=rows, dtype=tf.float32, name="noise")
        of_given = tf.square(given, name="of_given")
        tf.add(x * scale + noise, of_given + small, name="kept")
        tf.identity(large, name="out")
    feeds = [TensorSpec("x:0", "float32", (3, 4)), TensorSpec("given:0", "float32", ())]
    for fetches, is_large_free in ((["kept:0"], True), (["kept:0", "out:0"], False)):
        flat = flatten(graph.as_graph_def(), feeds, fetches)
        folded = folded_nodes(flat, infer(flat)).tolist()
        found = dict(zip([node.name for node in flat.graph_def.node], folded, strict=True))
        assert found["sum"] and found["scale"] and found["rows"] and found["small"]
        assert not found["x"] and not found["noise"] and not found["kept"] and not found["of_given"]
        assert found["large"] == is_large_free

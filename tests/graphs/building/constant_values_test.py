"""Values that constants and static shapes fix."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.constant_values import ConstantValues
from graphs.building.shapes import infer_graph_def

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

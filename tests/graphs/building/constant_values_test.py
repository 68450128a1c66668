"""Values that constants and static shapes fix."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.constant_values import ConstantValues, folded_nodes, handing_on
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


def _said_of_nodes(answer, graph, fetches):
    feeds = [TensorSpec("x:0", "float32", (4, 1, 3))]
    flat = flatten(graph.as_graph_def(), feeds, fetches)
    said = answer(flat, infer(flat)).tolist()
    return dict(zip([node.name for node in flat.graph_def.node], said, strict=True))


def test_what_leaves_out_repeats_and_moves_nothing_hands_its_input_on():
    """By the sizes of this batch, though it is open: as a gradient's sums over no axis."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 1, 3], name="x")
        shape = tf.shape(x)
        none = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=shape)[0]
        perm = tf.concat([tf.range(2), [2]], 0)
        made = {
            "sum_of_none": tf.raw_ops.Sum(input=x, axis=none),
            "sum_of_one": tf.raw_ops.Sum(input=x, axis=[1]),
            "as_it_is": tf.raw_ops.Transpose(x=x, perm=perm),
            "one_moved": tf.raw_ops.Transpose(x=x, perm=[1, 0, 2]),
            "repeated_once": tf.raw_ops.BroadcastTo(input=x, shape=shape),
            "axis_added": x[:, tf.newaxis],
            "sum": tf.raw_ops.Sum(input=x, axis=[0]),
            "moved": tf.raw_ops.Transpose(x=x, perm=[2, 1, 0]),
            "repeated": tf.raw_ops.Tile(input=x, multiples=[1, 2, 1]),
            "reversed": x[::-1],
            "cut": x[:, :, 1:],
        }
    ops = {name: tensor.op.name for name, tensor in made.items()}
    said = _said_of_nodes(handing_on, graph, [f"{op}:0" for op in ops.values()])
    handed = {name for name, op in ops.items() if said[op]}
    assert handed == set(made) - {"sum", "moved", "repeated", "reversed", "cut"}


def test_zeros_of_a_known_size_are_folded_and_what_is_read_for_them_alone():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 1, 3], name="x")
        sized = tf.exp(x, name="sized")
        read = tf.exp(x, name="read")
        zeros = tf.raw_ops.ZerosLike(x=tf.sin(sized, name="above"), name="zeros")
        tf.add(zeros, tf.raw_ops.OnesLike(x=read, name="ones") + read, name="out")
    said = _said_of_nodes(folded_nodes, graph, ["out:0"])
    assert said["zeros"] and said["ones"] and said["above"] and said["sized"]
    assert not said["read"] and not said["out"] and not said["x"]


@pytest.mark.parametrize(
    ("factor", "is_read_twice", "is_folded"),
    [([2.0, 3.0], False, True), (2.0, False, True), ([2.0, 3.0], True, False),
     ([[[2.0], [3.0], [4.0], [5.0]]], False, False)],
)  # fmt: skip
def test_what_a_convolution_is_multiplied_by_goes_into_its_filter(factor, is_read_twice, is_folded):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 1, 3], name="x")
        images = tf.reshape(x, [1, 4, 1, 3])
        made = tf.nn.conv2d(images, np.ones((1, 1, 3, 2), np.float32), 1, "SAME", name="conv")
        out = tf.multiply(tf.constant(factor), made, name="scaled")
        tf.identity(out + made if is_read_twice else out, name="out")
    said = _said_of_nodes(folded_nodes, graph, ["out:0"])
    assert said["scaled"] == is_folded and not said["conv"]

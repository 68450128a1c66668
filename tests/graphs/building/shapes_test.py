"""Dtype, shape and bytes of tensors before a run."""

import pytest
import tensorflow as tf

from graphs.building import shapes
from graphs.building.flatten import flatten
from graphs.errors import ModelError
from graphs.source_model import TensorSpec
from tests.graphs.small_graphs import matmul_graph

v1 = tf.compat.v1


def _matmul_graph():
    def halves(product):
        axis = tf.constant(0, name="axis")
        tf.raw_ops.Split(axis=axis, value=product, num_split=2, name="halves")

    return matmul_graph(3, 5, halves)


def test_complete_feed_makes_everything_known():
    properties = shapes.infer_graph_def(_matmul_graph(), [TensorSpec("x:0", "float32", (4, 3))])
    assert properties.dtype_of == {
        "x": ["float32"],
        "w": ["resource"],
        "read": ["float32"],
        "product": ["float32"],
        "axis": ["int32"],
        "halves": ["float32", "float32"],
        "text": ["string"],
    }
    assert properties.shape_of == {
        "x": [(4, 3)],
        "w": [()],
        "read": [(3, 5)],
        "product": [(4, 5)],
        "axis": [()],
        "halves": [(2, 5), (2, 5)],
        "text": [(4, 5)],
    }
    assert properties.bytes_of == {
        "x": [48],
        "w": [8],
        "read": [60],
        "product": [80],
        "axis": [4],
        "halves": [40, 40],
        "text": [480],
    }
    assert properties.unknown == []


def test_unknown_batch_is_listed_and_counts_as_one():
    properties = shapes.infer_graph_def(_matmul_graph())
    assert properties.shape_of["product"] == [(-1, 5)]
    assert properties.bytes_of["product"] == [20]
    assert properties.unknown == ["x:0", "product:0", "halves:0", "halves:1", "text:0"]


def test_unknown_rank_counts_as_a_scalar():
    with tf.Graph().as_default() as graph:
        v1.placeholder(tf.float64, None, name="x")
    properties = shapes.infer_graph_def(graph.as_graph_def())
    assert properties.shape_of == {"x": [None]}
    assert properties.bytes_of == {"x": [8]}
    assert properties.unknown == ["x:0"]


def test_feed_of_an_inner_tensor_reaches_its_users_and_leaves_the_graph_alone():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, None, name="x")
        _, second = tf.raw_ops.Unpack(value=x, num=2, name="pair")
        tf.raw_ops.Relu(features=second, name="relu")
    graph_def = graph.as_graph_def()
    before = graph_def.SerializeToString(deterministic=True)
    properties = shapes.infer_graph_def(graph_def, [TensorSpec("pair:1", "float32", (7,))])
    assert properties.shape_of == {"x": [None], "pair": [None, (7,)], "relu": [(7,)]}
    assert properties.unknown == ["x:0", "pair:0"]
    assert graph_def.SerializeToString(deterministic=True) == before


def test_reference_variable_and_stray_colocation():
    with tf.Graph().as_default() as graph:
        tf.raw_ops.VariableV2(shape=[2, 2], dtype=tf.float32, name="v")
    graph_def = graph.as_graph_def()
    graph_def.node[0].attr["_class"].list.s.append(b"loc:@pruned_away")
    graph_def.node[0].device = "/device:GPU:7"
    properties = shapes.infer_graph_def(graph_def)
    assert properties.dtype_of == {"v": ["float32"]}
    assert properties.bytes_of == {"v": [16]}


def test_feed_that_contradicts_the_graph_is_a_model_error():
    with pytest.raises(ModelError, match=r"inferring tensor shapes.*--batch_size"):
        shapes.infer_graph_def(_matmul_graph(), [TensorSpec("x:0", "float32", (4, 9))])


def test_unregistered_op_is_a_model_error():
    graph_def = v1.GraphDef()
    graph_def.node.add(name="mine", op="NobodyRegisteredThis")
    with pytest.raises(ModelError, match="NobodyRegisteredThis"):
        shapes.infer_graph_def(graph_def)


def test_value_dependent_sizes_are_bounded_by_what_they_are_read_from():
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [6], name="ids")
        distinct, _ = tf.raw_ops.Unique(x=ids, name="distinct")
        tf.raw_ops.Where(condition=tf.not_equal(distinct, 0, name="kept"), name="where")
        v1.placeholder(tf.float32, [None], name="open")
    properties = shapes.infer_graph_def(graph.as_graph_def())
    assert properties.shape_of["distinct"] == [(6,), (6,)]
    assert properties.shape_of["where"] == [(6, 1)]
    assert properties.unknown == ["open:0"]


def test_large_constants_keep_their_shape_and_lose_their_value():
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, shape=[3], name="small")
        tf.constant([float(i) for i in range(5000)], name="weights")
    bare = shapes.with_feeds_as_placeholders(graph.as_graph_def(), [])
    assert [(node.name, node.op) for node in bare.node] == [
        ("small", "Const"),
        ("weights", "Placeholder"),
    ]
    assert shapes.infer_graph_def(graph.as_graph_def()).shape_of["weights"] == [(5000,)]


def test_what_is_taken_out_of_an_optional_has_the_shape_of_what_was_put_in():
    rows = tf.TensorSpec((None, 3), tf.float32)

    def keep(x):
        return tf.raw_ops.OptionalFromValue(components=[x])

    def take(optional, spec):
        return tf.raw_ops.OptionalGetValue(
            optional=optional, output_types=[tf.float32], output_shapes=[spec.shape]
        )[0]

    @tf.function
    def step(x, wide, p):
        one = tf.cond(p, lambda: keep(tf.tanh(x)), lambda: keep(wide[1:]))
        return tf.cond(p, lambda: tf.reduce_sum(take(one, rows)), lambda: tf.reduce_sum(
            take(one, rows)))  # fmt: skip

    concrete = step.get_concrete_function(rows, rows, tf.TensorSpec((), tf.bool))
    feeds = [
        TensorSpec(tensor.name, tensor.dtype.name, shape)
        for tensor, shape in zip(concrete.inputs, [(6, 3), (8, 3), ()], strict=True)
    ]
    flat = flatten(concrete.graph.as_graph_def(), feeds, [concrete.outputs[0].name])
    properties = shapes.infer(flat)
    taken = {n.name: properties.shape(n.name) for n in flat.graph_def.node
             if n.op == "OptionalGetValue"}  # fmt: skip
    assert sorted(taken.values()) == [(6, 3), (7, 3)]
    assert all(("/then/" in name) == (shape == (6, 3)) for name, shape in taken.items())


def test_what_a_loop_makes_is_known_where_its_body_is_looked_at():
    """The model says nothing of the rows that come out; a step that is cut has to know them."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
    def step(x):
        either = (tf.TensorShape([]), tf.TensorShape(None))
        _, y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.tanh(y)), (0, x), either)
        return tf.exp(y, name="behind")

    graph_def = step.get_concrete_function().graph.as_graph_def()
    flat = flatten(graph_def, [TensorSpec("x:0", "float32", (5, 3))], ["behind:0"])
    assert shapes.infer_known(flat).shape("behind:0") is None
    assert shapes.infer_known(flat, through_units=True).shape("behind:0") == (5, 3)

"""TensorFlow is asked about the shapes of one of those that are alike, and says the same of all."""

import numpy as np
import tensorflow as tf

from graphs.building import shapes
from graphs.building.same_shapes import first_of_shapes, without_same
from graphs.source_model import TensorSpec
from tests.graphs.small_graphs import matmul_graph

v1 = tf.compat.v1


def _graph(make):
    with tf.Graph().as_default() as graph:
        make()
    return graph.as_graph_def()


def _stands(graph_def, fed=()):
    names = [node.name for node in graph_def.node]
    first = first_of_shapes(graph_def, fed)
    return {name: names[number] for name, number in zip(names, first, strict=True)}


def _require_the_same(monkeypatch, graph_def, feeds=()):
    """The properties, which are those that TensorFlow says of the whole graph."""
    properties = shapes.infer_graph_def(graph_def, feeds)
    with monkeypatch.context() as patched:
        patched.setattr(shapes, "first_of_shapes", lambda g, fed: np.arange(len(g.node)))
        assert shapes.infer_graph_def(graph_def, feeds) == properties
    assert list(properties.shape_of) == [node.name for node in graph_def.node]
    return properties


def _shards(sizes=(2, 2, 1)):
    def make():
        x = v1.placeholder(tf.float32, [sum(sizes), 8], name="x")
        w = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[8, 4], shared_name="w", name="w")
        for shard, part in enumerate(tf.split(x, sizes, name="cut")):
            read = tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32, name=f"read{shard}")
            with tf.control_dependencies([part]):
                y = tf.raw_ops.MatMul(a=part, b=read, name=f"y{shard}")
            tf.reshape(y, [-1, 2], name=f"z{shard}")

    return _graph(make)


def test_shards_of_one_size_are_alike(monkeypatch):
    graph_def = _shards()
    stands = _stands(graph_def)
    assert stands["y1"] == "y0" and stands["z1"] == "z0" and stands["read2"] == "read0"
    assert stands["y2"] == "y2" and stands["z2/shape"] == "z0/shape" and stands["w"] == "w"
    kept = without_same(graph_def, first_of_shapes(graph_def, ()))
    nodes = {node.name: node for node in kept.node}
    assert list(nodes["y2"].input) == ["cut:2", "read0"] and "y1" not in nodes
    properties = _require_the_same(monkeypatch, graph_def)
    assert properties.shape_of["z1"] == [(4, 2)] and properties.shape_of["z2"] == [(2, 2)]


def test_the_first_number_of_a_shape_is_no_other_number(monkeypatch):
    """A cast of 0 has the shape of a cast of 1, the first constant, and is not that."""

    def make():
        one, zero = tf.constant(1, name="one"), tf.constant(0, name="zero")
        start, delta = (tf.raw_ops.Cast(x=x, DstT=tf.int64) for x in (zero, one))
        tf.raw_ops.Range(start=start, limit=tf.constant(5, tf.int64), delta=delta, name="range")

    graph_def = _graph(make)
    assert len({_stands(graph_def)[name] for name in ("Cast", "Cast_1")}) == 2
    assert _require_the_same(monkeypatch, graph_def).shape_of["range"] == [(5,)]


def test_what_is_fed_is_like_itself_alone(monkeypatch):
    graph_def = _shards((2, 2))
    assert _stands(graph_def, {"y1"})["z1"] == "z1"
    feeds = [TensorSpec("y1:0", "float32", (6, 4))]
    assert _require_the_same(monkeypatch, graph_def, feeds).shape_of["z1"] == [(12, 2)]


def test_elements_that_say_shapes_are_not_alike(monkeypatch):
    def make():
        x = v1.placeholder(tf.float32, [12], name="x")
        sizes = tf.split(tf.constant([3, 4, 2, 6]), [2, 2], name="cut")
        for i, size in enumerate(sizes):
            tf.reshape(x, size, name=f"z{i}")
            tf.reshape(x, size * 1, name=f"made{i}")
            added = tf.raw_ops.AddV2(x=size, y=tf.cast(x[:2], tf.int32), name=f"added{i}")
            tf.raw_ops.Fill(dims=added, value=1.0, name=f"open{i}")

    properties = _require_the_same(monkeypatch, _graph(make))
    assert properties.shape_of["z0"] == [(3, 4)] and properties.shape_of["made1"] == [(2, 6)]
    assert properties.shape_of["open1"] == [(-1, -1)]
    assert _stands(_graph(make))["added1"] == "added0"  # no elements of it are known


def test_numbers_of_rows_differ_and_shapes_don_t(monkeypatch):
    def make():
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        rows = v1.placeholder(tf.int32, [4], name="rows")
        for i, numbers in enumerate(tf.split(tf.range(4) * 3, [2, 2], name="cut")):
            moved = tf.raw_ops.Reshape(tensor=numbers, shape=[1, 2], name=f"moved{i}")
            own = tf.raw_ops.Sub(x=rows[:2], y=tf.constant(i, name=f"first{i}"), name=f"own{i}")
            own = tf.raw_ops.AddV2(x=own, y=moved, name=f"sum{i}")
            tf.raw_ops.UnsortedSegmentSum(
                data=x[:1, :2], segment_ids=own, num_segments=5, name=f"z{i}"
            )

    stands = _stands(_graph(make))
    assert stands["moved1"] == "moved1"
    assert stands["own1"] == "own0" and stands["sum1"] == "sum0" and stands["z1"] == "z0"
    properties = _require_the_same(monkeypatch, _graph(make))
    assert properties.shape_of["z1"] == [(5,)]


def test_what_is_handed_on_is_alike_however_often(monkeypatch):
    def make():
        x = v1.placeholder(tf.float32, [6, 4], name="x")
        given = v1.placeholder(tf.float32, [4, 5], name="given")
        for i, part in enumerate(tf.split(x, [2, 2, 2], name="cut")):
            given = tf.raw_ops.Identity(input=given, name=f"relay{i}")
            tf.raw_ops.MatMul(a=part, b=given, name=f"y{i}")
            tf.raw_ops.MatMul(a=part, b=given * 2, name=f"z{i}")
        tf.raw_ops.Identity(input=x, name="other")

    stands = _stands(_graph(make))
    assert stands["relay2"] == "relay0" and stands["y2"] == "y0" and stands["z2"] == "z0"
    assert stands["other"] == "other"
    _require_the_same(monkeypatch, _graph(make))


def test_bounds_of_what_is_alike_are_alike(monkeypatch):
    def make():
        x = v1.placeholder(tf.int32, [6], name="x")
        for i, part in enumerate(tf.split(x, [3, 3], name="cut")):
            unique = tf.raw_ops.Unique(x=part, name=f"unique{i}")
            tf.raw_ops.Square(x=unique.y, name=f"z{i}")

    properties = _require_the_same(monkeypatch, _graph(make))
    assert properties.shape_of["unique0"] == properties.shape_of["unique1"] == [(3,), (3,)]
    assert properties.shape_of["z1"] == [(3,)] and not properties.unknown


def test_what_has_a_state_or_goes_round_is_like_itself_alone():
    def loop():
        x = v1.placeholder(tf.float32, [2], name="x")
        for name in ("a", "b"):
            entered = tf.raw_ops.Enter(data=x, frame_name="f", name=name)
            tf.raw_ops.NextIteration(data=entered, name=f"{name}_next")

    def draws():
        for name in ("a", "b"):
            tf.raw_ops.RandomUniform(shape=tf.constant([2]), dtype=tf.float32, name=name)

    assert _stands(_graph(loop))["b"] == "b"
    assert _stands(_graph(draws))["b"] == "b"


def test_damaged_parts_are_left_to_tensorflow(monkeypatch):
    graph_def = matmul_graph(3, 5, lambda y: tf.split(y, [2, -1], name="cut"))
    for node in graph_def.node:
        if node.op == "Const":
            del node.attr["value"]
    first = first_of_shapes(graph_def, ())
    assert len(without_same(graph_def, first).node) <= len(graph_def.node)
    odd = type(graph_def)()
    odd.node.add(name="a", op="Identity", input=["b:x", "c"])
    odd.node.add(name="b", op="SplitV", input=["a"])
    assert first_of_shapes(odd, ()).tolist() == [0, 1]

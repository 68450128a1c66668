"""Ops that run again: written, taken out, and proven to be their originals."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.device_properties_pb2 import DeviceProperties, NamedDevice
from tensorflow.python.grappler import cluster as grappler
from tensorflow.python.grappler import tf_optimizer

from graphs.errors import ModelError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.memory.planned_model import cleared_model
from rewrite.memory.recompute import (
    KEPT,
    MARK,
    MemoryPlan,
    NodeCopy,
    check_plan,
    has_plan,
    with_plan,
    without_plan,
)
from rewrite.pass_base import RewriteError

PLAN = MemoryPlan(
    [NodeCopy(("", "a"), {}, "c"), NodeCopy(("", "b"), {"a": 0})], {("", "d"): {"b": 1}}
)


ON_HOST = MemoryPlan(
    [
        NodeCopy(("", "a"), {}, "c"),
        NodeCopy(("", "b"), {"a": 0}),
        NodeCopy(("", "b"), {"b": 1}, "c", 0),
    ],
    {("", "d"): {"b:0": 2}},
)
"""What b's second run makes waits on the host for d."""


@pytest.fixture(scope="module")
def graph_def():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        a = tf.raw_ops.Exp(x=x, name="a")
        b = tf.raw_ops.Sub(x=a, y=x, name="b")
        c = tf.raw_ops.Mul(x=b, y=b, name="c")
        tf.raw_ops.AddV2(x=c, y=b, name="d")
    return graph.as_graph_def()


def value(graph_def, fetch="d:0"):
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(fetch, {"x:0": np.arange(4, dtype=np.float32)})


def test_copies_compute_the_same_and_wait(graph_def):
    planned = with_plan(graph_def, PLAN)
    nodes = {node.name: node for node in planned.node}
    assert list(nodes["a/again"].input) == ["x", "^c"]
    assert list(nodes["b/again"].input) == ["a/again", "x"]
    assert list(nodes["d"].input) == ["c", "b/again"]
    assert list(nodes["c"].input) == ["b", "b"]
    np.testing.assert_array_equal(value(planned), value(graph_def))
    assert check_plan(graph_def, planned) == 2


def test_taking_out_gives_the_graph_back(graph_def):
    planned = with_plan(graph_def, PLAN)
    assert has_plan(planned)
    assert without_plan(planned) == graph_def
    assert without_plan(graph_def) is graph_def
    assert check_plan(graph_def, graph_def) == 0


def test_what_waits_on_the_host_is_handed_back_by_a_snapshot(graph_def):
    planned = with_plan(graph_def, ON_HOST)
    nodes = {node.name: node for node in planned.node}
    assert nodes["b/on_host"].op == "Snapshot"
    assert list(nodes["b/on_host"].input) == ["b/again", "^c"]
    assert list(nodes["d"].input) == ["c", "b/on_host"]
    np.testing.assert_array_equal(value(planned), value(graph_def))
    assert check_plan(graph_def, planned) == 3
    assert without_plan(planned) == graph_def


def _other_output(planned):
    _node(planned, "b/on_host").attr[KEPT].i = 1


def _of_another_op(planned):
    _node(planned, "b/on_host").attr[MARK].s = b"a"


def _hands_back_another(planned):
    _node(planned, "b/on_host").input[0] = "a/again"


def _other_snapshot_type(planned):
    _node(planned, "b/on_host").attr["T"].type = 2


def _no_snapshot(planned):
    _node(planned, "b/on_host").op = "Neg"


@pytest.mark.parametrize(
    "change",
    [_other_output, _of_another_op, _hands_back_another, _other_snapshot_type, _no_snapshot],
)
def test_what_hands_back_something_else_is_found(graph_def, change):
    planned = copy.deepcopy(with_plan(graph_def, ON_HOST))
    change(planned)
    with pytest.raises(RewriteError):
        check_plan(graph_def, planned)


def called(step, names):
    """A graph that calls a function, and the name of the one that has these ops."""

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def outer(x):
        return step(x)

    given = outer.get_concrete_function().graph.as_graph_def()
    [function] = [f for f in given.library.function if {n.name for n in f.node_def} >= names]
    return given, function.signature.name


def inputs_in(graph_def, name):
    body = next(f for f in graph_def.library.function if f.signature.name == name).node_def
    return {node.name: list(node.input) for node in body}


def test_an_output_of_an_op_in_a_function_waits_on_the_host():
    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def step(x):
        low, high = tf.raw_ops.Split(axis=0, value=x, num_split=2, name="s")
        return tf.multiply(high, tf.add(low, high, name="b"), name="c")

    given, name = called(step, {"s", "c"})
    plan = MemoryPlan([NodeCopy((name, "s"), {}, "b", 1)], {(name, "c"): {"s:1": 0}})
    planned = with_plan(given, plan)
    nodes = inputs_in(planned, name)
    assert nodes["s/on_host"] == ["s:output:1", "^b"]
    assert nodes["c"] == ["s/on_host:output:0", "b:z:0"]
    assert without_plan(planned) == given
    assert check_plan(given, planned) == 1


@pytest.mark.parametrize(("op", "is_kept"), [("Snapshot", True), ("Identity", False)])
def test_grappler_keeps_what_waits_on_the_host(op, is_kept):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [64], name="x")
        a = tf.raw_ops.Exp(x=x, name="a")
        for _ in range(4):
            b = tf.raw_ops.Tanh(x=a, name="b")
        d = tf.raw_ops.AddV2(x=b, y=a, name="d")
        tf.raw_ops.Neg(x=d, name="end")
    planned = with_plan(
        graph.as_graph_def(), MemoryPlan([NodeCopy(("", "a"), {}, "", 0)], {("", "d"): {"a:0": 0}})
    )
    for node in planned.node:
        node.device = "/job:localhost/replica:0/task:0/device:GPU:0"
    _node(planned, "a/on_host").device = "/job:localhost/replica:0/task:0/device:CPU:0"
    _node(planned, "a/on_host").op = op
    meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=planned, graph=graph)
    meta_graph.graph_def.CopyFrom(planned)
    meta_graph.collection_def["train_op"].node_list.value.append("end")
    devices = [
        NamedDevice(name=f"/job:localhost/replica:0/task:0/device:{kind}:0",
                    properties=DeviceProperties(type=kind, num_cores=4, frequency=1000))
        for kind in ("CPU", "GPU")
    ]  # fmt: skip
    optimized = tf_optimizer.OptimizeGraph(
        tf.compat.v1.ConfigProto(), meta_graph, cluster=grappler.Cluster(devices=devices)
    )
    assert any(node.name == "a/on_host" for node in optimized.node) == is_kept


def _node(graph_def, name):
    return next(node for node in graph_def.node if node.name == name)


def _other_type(planned):
    _node(planned, "a/again").op = "Neg"


def _other_attribute(planned):
    _node(planned, "b/again").attr["T"].type = 2


def _swapped(planned):
    inputs = _node(planned, "b/again").input
    inputs[0], inputs[1] = inputs[1], inputs[0]


def _other_input(planned):
    _node(planned, "a/again").input[0] = "b"


def _other_original(planned):
    _node(planned, "a/again").attr[MARK].s = b"x"


def _no_original(planned):
    _node(planned, "a/again").attr[MARK].s = b"nothing"


def _copy_of_a_copy(planned):
    _node(planned, "b/again").attr[MARK].s = b"a/again"


def _waits_twice(planned):
    _node(planned, "b/again").input.extend(["^c", "^x"])


def _one_input_more(planned):
    _node(planned, "a/again").input.insert(1, "b")


def _reader_reads_the_wrong_copy(planned):
    _node(planned, "d").input[1] = "a/again"


def _reader_reads_another_output(planned):
    _node(planned, "d").input[1] = "b/again:1"


def _changed_elsewhere(planned):
    _node(planned, "c").input[0] = "a"


@pytest.mark.parametrize(
    "change",
    [
        _other_type,
        _other_attribute,
        _swapped,
        _other_input,
        _other_original,
        _no_original,
        _copy_of_a_copy,
        _waits_twice,
        _one_input_more,
        _reader_reads_the_wrong_copy,
        _reader_reads_another_output,
        _changed_elsewhere,
    ],
)
def test_what_is_no_copy_is_found(graph_def, change):
    planned = copy.deepcopy(with_plan(graph_def, PLAN))
    change(planned)
    with pytest.raises(RewriteError):
        check_plan(graph_def, planned)


def test_a_plan_for_another_graph_is_refused(graph_def):
    with pytest.raises(RewriteError, match="no such op"):
        with_plan(graph_def, MemoryPlan([NodeCopy(("", "nothing"), {})]))


def test_functions_have_copies_of_their_own():
    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def step(x):
        a = tf.exp(x, name="a")
        return tf.multiply(a, tf.add(a, x, name="b"), name="c")

    given, name = called(step, {"a", "c"})
    plan = MemoryPlan([NodeCopy((name, "a"), {}, "b")], {(name, "c"): {"a": 0}})
    planned = with_plan(given, plan)
    nodes = inputs_in(planned, name)
    assert nodes["a/again"] == ["x", "^b"]
    assert nodes["c"] == ["a/again:y:0", "b:z:0"]
    assert without_plan(planned) == given
    assert check_plan(given, planned) == 1


def test_a_copy_that_waits_for_itself_through_a_call_does_not_wait():
    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)] * 2)
    def inner(x, y):
        return tf.sin(x, name="s"), tf.cos(y, name="t")

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def outer(x):
        a = tf.exp(x, name="a")
        first, second = inner(x, a)
        return second, tf.tanh(first, name="late")

    given = outer.get_concrete_function().graph.as_graph_def()
    [call] = [node.name for node in given.node if node.op.endswith("PartitionedCall")]
    plan = MemoryPlan([NodeCopy(("", "a"), {}, "late")], {("", call): {"a": 0}})
    planned = with_plan(given, plan)
    nodes = {node.name: list(node.input) for node in planned.node}
    assert "a/again" in nodes[call]
    assert nodes["a/again"] == ["x"]
    assert check_plan(given, planned) == 1


def test_what_has_an_effect_is_no_copy():
    with tf.Graph().as_default() as graph:
        drawn = tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32, name="a")
        tf.raw_ops.Mul(x=drawn, y=drawn, name="d")
    given = graph.as_graph_def()
    planned = with_plan(given, MemoryPlan([NodeCopy(("", "a"), {})], {("", "d"): {"a": 0}}))
    with pytest.raises(RewriteError, match="may not run twice"):
        check_plan(given, planned)


def test_a_strangers_mark_takes_nothing_out(graph_def, tmp_path):
    forged = with_plan(graph_def, PLAN)
    _other_type(forged)
    path = tmp_path / "forged.pb"
    path.write_bytes(forged.SerializeToString())
    with pytest.raises(ModelError, match="not the same op"):
        cleared_model(load(str(path), LoadOptions(fetch=("d:0",))))

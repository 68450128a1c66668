"""What a model that is only looked at may not do: open files that its ops name."""

import resource
import shutil

import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.building.never_evaluated import never_evaluated, restore_evaluated
from graphs.building.shapes import infer
from graphs.errors import ModelError
from graphs.loading.load import load
from graphs.source_model import TensorSpec

v1 = tf.compat.v1


def _number_in(path):
    return tf.strings.to_number(tf.io.read_file(str(path)), tf.int32)


@tf.function(autograph=False)
def _in_function(name):
    return tf.strings.to_number(tf.io.read_file(name), tf.int32)


def _debugged(path):
    number = tf.constant(3)
    url = f"file://{path.parent}/dump"
    return tf.raw_ops.DebugIdentity(input=number, tensor_name="n:0", debug_urls=[url])


def _called(path):
    return _in_function(tf.constant(str(path)))


@pytest.mark.parametrize("size", [_number_in, _called, _debugged])
@pytest.mark.parametrize("is_whole", [False, True])
def test_no_file_is_read_or_written_where_shapes_are_inferred(tmp_path, size, is_whole):
    path = tmp_path / "number"
    path.write_text("3")
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4], name="x")
        tf.identity(tf.tile(x, tf.reshape(size(path), [1])), name="y")
    shutil.rmtree(tmp_path / "dump", ignore_errors=True)  # which TensorFlow wrote, just above
    graph_def = graph.as_graph_def()
    for function in graph_def.library.function:
        function.attr["_noinline"].b = is_whole
    flat = flatten(graph_def, [TensorSpec("x:0", "float32", (4,))], ["y:0"])
    assert infer(flat).shape("y:0") in ((-1,), None)
    assert [each.name for each in tmp_path.iterdir()] == ["number"]


def test_ops_come_back():
    with tf.Graph().as_default() as graph:
        _in_function(tf.io.read_file("a"))
    given = graph.as_graph_def()
    made = never_evaluated(given)
    assert not {"ReadFile"} & {node.op for node in made.node}
    assert never_evaluated(made) is made
    with tf.Graph().as_default():
        tf.import_graph_def(made)
    restore_evaluated(made, given)
    assert made == given


def _fill(count):
    return tf.raw_ops.Fill(dims=tf.raw_ops.AddV2(x=count, y=[0]), value=2)


def _broadcast(count):
    column = tf.raw_ops.Fill(dims=tf.concat([count, [1]], 0), value=1)
    return tf.reshape(column + tf.transpose(column), [-1])


def _filled_in_function(count):
    return tf.function(_fill, autograph=False)(count)


@pytest.mark.parametrize("large", [_fill, _broadcast, _filled_in_function])
@pytest.mark.parametrize("count", [3, 40_000_000])
@pytest.mark.parametrize("is_whole", [False, True])
def test_no_large_constant_is_made_where_shapes_are_inferred(monkeypatch, large, count, is_whole):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4], name="x")
        size = v1.placeholder_with_default([3], [1], name="count")
        tf.identity(tf.reshape(x, large(size)[:2]), name="y")
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.name == "count":  # after TensorFlow, which makes the graph, has inferred its shapes
            node.op, node.input[:] = "Const", []
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([count]))
            del node.attr["shape"]
    for function in graph_def.library.function:
        function.attr["_noinline"].b = is_whole
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shape = infer(flatten(graph_def, [TensorSpec("x:0", "float32", (4,))], ["y:0"])).shape("y:0")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    known = count == 3 and not (is_whole and large is _filled_in_function)
    assert shape == ((2, 2) if known else None)


@pytest.mark.parametrize("in_function", [False, True])
def test_an_op_of_a_billion_outputs_is_refused(tmp_path, in_function):
    graph_def = v1.GraphDef()
    function = graph_def.library.function.add()
    function.signature.name = "f"
    node = function.node_def.add() if in_function else graph_def.node.add()
    node.name, node.op = "y", "Unpack"
    node.attr["num"].i = 10**9
    graph_def.node.add(name="z", op="NoOp")
    (tmp_path / "a.pb").write_bytes(graph_def.SerializeToString())
    with pytest.raises(ModelError, match="Unpack makes 1,000,000,000 outputs; wanted at most"):
        load(tmp_path / "a.pb")


def test_shapes_of_an_op_with_several_outputs_are_known_where_it_is_not_evaluated():
    graph = tf.Graph()
    with graph.as_default():
        parts = tf.split(tf.fill([1024, 1024], 1.0), [256] * 4, axis=1, name="parts")
        tf.matmul(parts[0], parts[1], transpose_a=True, name="product")
    flat = flatten(graph.as_graph_def(), [], ["product:0"])
    assert never_evaluated(flat.graph_def) is not flat.graph_def
    properties = infer(flat)
    assert properties.shape_of["parts"] == [(1024, 256)] * 4
    assert properties.shape("product:0") == (256, 256)

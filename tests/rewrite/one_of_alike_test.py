"""TensorFlow imports one op of a kind, and what is written is as if it had imported all."""

import random

import pytest
import tensorflow as tf

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite import build_saved_model as building
from rewrite.model_builder import _request
from rewrite.one_of_alike import import_order, one_of_alike
from tests.rewrite.models import linear_regression
from tests.rewrite.split.run_step import split_model

v1 = tf.compat.v1


def _graph_def(make):
    with tf.Graph().as_default() as graph:
        make()
    return graph.as_graph_def()


def _parts():
    """Four alike parts, each of which waits for the one before and lies beside its own cut."""
    x = v1.placeholder(tf.float32, [8, 3], name="x")
    before = x
    for i, part in enumerate(tf.split(x, [2, 2, 2, 2], name="cut")):
        with tf.control_dependencies([before]):
            y = tf.raw_ops.MatMul(a=part, b=tf.ones([3, 2], name="w"), name=f"y{i}")
        with v1.colocate_with(y):
            before = tf.raw_ops.Square(x=y, name=f"square{i}")


def _imported(graph_def):
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        tf.identity(graph.get_tensor_by_name("x:0"), name="more")
    return graph.as_graph_def(add_shapes=True)


def _lines(nodes):
    return [node.SerializeToString(deterministic=True) for node in nodes]


@pytest.mark.parametrize("seed", range(3))
def test_all_ops_are_as_if_all_had_been_imported(seed):
    graph_def = _graph_def(_parts)
    nodes = list(graph_def.node)
    random.Random(seed).shuffle(nodes)
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    alike = one_of_alike(graph_def, (), ())
    names = {node.name for node in alike.graph_def.node}
    assert len(names & {"y0", "y1", "y2", "y3"}) == 1 and len(names) < len(nodes) - 6
    whole = _imported(graph_def)
    found = alike.all_of(graph_def, _imported(alike.graph_def).node)
    assert _lines(found) == _lines(whole.node)


def test_what_is_run_or_named_stays():
    graph_def = _graph_def(_parts)
    kept = {node.name for node in one_of_alike(graph_def, ["y1"], ["square3"]).graph_def.node}
    # y1 waits for square0, which reads y0: all of it has its own values
    assert {"y0", "y1", "y2", "square0", "square1", "square3"} <= kept
    assert "y3" not in kept
    assert "y3" in {n.name for n in one_of_alike(graph_def, (), (), ("y3",)).graph_def.node}


def test_what_tensorflow_must_see_itself_is_left_to_it():
    graph_def = _graph_def(_parts)
    graph_def.node[-1].input.append("^nothing")
    assert one_of_alike(graph_def, (), ()) is None
    twice = _graph_def(_parts)
    twice.node.add().CopyFrom(twice.node[0])
    assert one_of_alike(twice, (), ()) is None

    def loop():
        x = v1.placeholder(tf.float32, [2], name="x")
        tf.raw_ops.NextIteration(data=tf.raw_ops.Enter(data=x, frame_name="f"))

    assert import_order(_graph_def(loop).node) is None


@pytest.mark.parametrize("resource", [False, True])
def test_a_saved_model_is_the_same(tmp_path, monkeypatch, resource):
    path = tmp_path / "model.pb"
    path.write_bytes(linear_regression(resource).as_graph_def().SerializeToString())
    source = split_model(load(str(path), LoadOptions()), 2).source
    assert source.graph_def is source.split_graph  # which says all shapes: no copy
    made = []
    for least in (0, 10**6):
        monkeypatch.setattr(building, "LEAST_NODES", least)
        folder = tmp_path / str(least)
        request = _request(source, folder, False)
        graph_def = request["graph_def"]
        alike = building._built(request)
        assert (alike is None) == (least > 0)
        building._complete(folder / "saved_model.pb", alike, graph_def)
        files = [each for each in folder.rglob("*") if each.is_file()]
        made.append({each.name: each.read_bytes() for each in files})
    assert made[0] == made[1] and len(made[0]) == 3

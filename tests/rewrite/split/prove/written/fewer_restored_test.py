"""Of a large model one variable of each kind is restored where it is loaded, the others read."""

import copy

import pytest
import tensorflow as tf

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from graphs.names import op_of
from rewrite.model_builder import build_saved_model
from rewrite.split.prove.written import loadable_model, prove_loads
from rewrite.split.prove.written.load_child import loaded_models
from rewrite.split.prove.written.loadable_model import Loadable, restore_fewer
from rewrite.split.prove.written.prove_loads import LOADS_ALIKE, LoadedModels, LoadRequest
from tests.rewrite.split import child_here
from tests.rewrite.split.child_here import ChildHere

v1 = tf.compat.v1
SHAPES = {"a": (3, 2), "b": (2,), "c": (3, 2), "d": (2,), "e": (3, 2)}
FLOAT = tf.float32.as_datatype_enum


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    with tf.Graph().as_default() as graph:
        variables = [
            v1.get_variable(name, shape, use_resource=True) for name, shape in SHAPES.items()
        ]
        tf.add_n([tf.reduce_sum(each) for each in variables], name="loss")
        (folder / "given.pb").write_bytes(graph.as_graph_def().SerializeToString())
    given = load(str(folder / "given.pb"), LoadOptions(fetch=("loss:0",)))
    (folder / "built").mkdir()
    return given, build_saved_model(given, folder / "built").directory


@pytest.fixture
def meta_graph(built):
    return sniff(built[1]).proto.meta_graphs[0]


def fewer(meta_graph):
    return restore_fewer(meta_graph.graph_def, op_of(meta_graph.saver_def.restore_op_name))


def test_what_is_like_another_variable_is_not_restored(meta_graph):
    left = fewer(meta_graph)
    assert left == {name: (FLOAT, SHAPES[name]) for name in "cde"}
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    done = nodes[op_of(meta_graph.saver_def.restore_op_name)]
    assert [nodes[op_of(name)].input[0] for name in done.input] == ["a", "b"]
    (restore,) = (node for node in nodes.values() if node.op == "RestoreV2")
    assert len(restore.attr["dtypes"].list.type) == 2


def test_a_large_model_loads_so(built, monkeypatch):
    given, directory = built
    monkeypatch.setattr(prove_loads, "AskedChild", ChildHere)
    monkeypatch.setattr(loadable_model, "LEAST_NODES", 0)
    assert child_here.prove_loads(given, directory).text == LOADS_ALIKE


def test_what_is_not_restored_is_read(built):
    _, directory = built
    request = LoadRequest(str(directory), ["serve"], True, "", (), b"")

    def why_not(**left):
        return loaded_models(request, Loadable(str(directory), (), True, left), directory).written

    assert loaded_models(request, Loadable(str(directory), ()), directory) == LoadedModels()
    assert why_not(c=(FLOAT, (3, 2)), d=(FLOAT, (2,))) == ""
    assert "'c' as float32 (3, 2)" in why_not(c=(FLOAT, (2, 3)))
    assert "'d' as float32 (2,)" in why_not(d=(tf.int32.as_datatype_enum, (2,)))
    assert "missing" in why_not(missing=(FLOAT, (2,)))


def also_read(graph_def, nodes):
    graph_def.node.add(op="Identity", name="more", input=["SCOPE/RestoreV2:2"])


def cut(graph_def, nodes):
    slices = nodes["RestoreV2/shape_and_slices"].attr["value"].tensor
    slices.string_val[:] = [b"", b"", b"3 2 0,1:0,2", b"", b""]


def in_two_files(graph_def, nodes):
    other = graph_def.node.add()
    other.CopyFrom(nodes["RestoreV2"])
    other.name = "other"
    nodes["Identity_1"].input[0] = "other:1"


def of_no_known_shape(graph_def, nodes):
    del nodes["c"].attr["shape"]


def waits_for_more(graph_def, nodes):
    nodes["restore_all"].input.append("^loss")


@pytest.mark.parametrize("change", [also_read, cut, in_two_files, of_no_known_shape,
                                    waits_for_more])  # fmt: skip
def test_another_form_of_saver_stays(meta_graph, change):
    graph_def = meta_graph.graph_def
    scope = op_of(meta_graph.saver_def.restore_op_name).removesuffix("restore_all")
    change(graph_def, {node.name.removeprefix(scope): node for node in graph_def.node})
    for node in graph_def.node:
        node.input[:] = [name.replace("SCOPE/", scope) for name in node.input]
    before = copy.deepcopy(graph_def)
    assert fewer(meta_graph) == {}
    assert graph_def == before

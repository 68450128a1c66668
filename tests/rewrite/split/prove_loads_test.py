"""A large model loads if one op of each kind does; else only the whole one tells a defect."""

from typing import ClassVar

import pytest

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite.model_builder import build_saved_model
from rewrite.order.marks import add_marked
from rewrite.split import prove_loads as module
from rewrite.split.prove_loads import LOADS_ALIKE, prove_loads
from rewrite.split.prove_loads_child import loaded_models
from rewrite.split.split_model import split_model
from tests.rewrite.models import write_graph_def


class _Here:
    """A child that is this process, and counts what it is asked."""

    asked: ClassVar[list[int]] = []

    def __init__(self, name):
        del name

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ask(self, request):
        self.asked.append(len(sniff(request.directory).proto.meta_graphs[0].graph_def.node))
        self._answer = loaded_models(request)

    def answer(self, seconds):
        return self._answer


@pytest.fixture
def written(tmp_path, monkeypatch):
    given = load(write_graph_def(tmp_path / "given.pb"), LoadOptions())
    (tmp_path / "folder").mkdir()
    split = split_model(given, 4).source
    built = build_saved_model(split, tmp_path / "folder", without_values=True)
    monkeypatch.setattr(module, "AskedChild", _Here)
    monkeypatch.setattr(module, "LEAST_NODES", 0)
    monkeypatch.setattr(_Here, "asked", [])
    return given, built.directory


def _change(directory, change):
    saved_model = sniff(directory).proto
    change(saved_model.meta_graphs[0])
    (directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())


def _on_another_host(meta_graph):
    for node in meta_graph.graph_def.node:
        node.device = "/job:worker/task:3/device:GPU:7"
    meta_graph.ClearField("saver_def")  # its variables have no values


def test_a_large_model_loads_with_one_op_of_each_kind(written):
    given, directory = written
    _change(directory, _on_another_host)
    assert prove_loads(given, directory, ["serve"]).text == LOADS_ALIKE
    assert _Here.asked[0] < len(sniff(directory).proto.meta_graphs[0].graph_def.node) - 10


def test_an_order_is_no_hindrance(written):
    given, directory = written
    _change(directory, _on_another_host)
    meta_graph = sniff(directory).proto.meta_graphs[0]
    fewer = module._with_one_of_alike(meta_graph).meta_graphs[0]
    kept = {node.name for node in fewer.graph_def.node}
    left_out = next(n.name for n in meta_graph.graph_def.node if n.name not in kept)

    def order(meta_graph):
        nodes = {node.name: node for node in meta_graph.graph_def.node}
        add_marked(nodes["train_op"], left_out)

    _change(directory, order)
    assert prove_loads(given, directory, ["serve"]).text == LOADS_ALIKE


def test_what_does_not_load_so_is_loaded_whole(written):
    def damage(meta_graph):
        _on_another_host(meta_graph)
        next(iter(meta_graph.signature_def.values())).outputs["loss"].name = "nothing:0"

    given, directory = written
    _change(directory, damage)
    proof = prove_loads(given, directory, ["serve"])
    assert "nothing" in proof.defect and len(_Here.asked) == 2 and _Here.asked[0] < _Here.asked[1]


def test_a_model_of_objects_is_loaded_whole(written):
    _, directory = written
    _change(directory, lambda meta_graph: meta_graph.object_graph_def.nodes.add())
    meta_graph = sniff(directory).proto.meta_graphs[0]
    assert module._with_one_of_alike(meta_graph) is None

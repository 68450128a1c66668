"""A large model loads if one op of each kind does; else only the whole one tells a defect."""

import pytest

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite.model_builder import build_saved_model
from rewrite.order.order_edges import MARK, add_marked
from rewrite.split.prove.written import loadable_model
from rewrite.split.prove.written import prove_loads as module
from rewrite.split.prove.written.prove_loads import LOADS_ALIKE
from tests.rewrite.models import write_graph_def
from tests.rewrite.split.child_here import ChildHere, prove_loads
from tests.rewrite.split.run_step import split_model


@pytest.fixture
def written(tmp_path, monkeypatch):
    given = load(write_graph_def(tmp_path / "given.pb"), LoadOptions())
    (tmp_path / "folder").mkdir()
    split = split_model(given, 4).source
    built = build_saved_model(split, tmp_path / "folder", without_values=True)
    monkeypatch.setattr(module, "AskedChild", ChildHere)
    monkeypatch.setattr(loadable_model, "LEAST_NODES", 0)
    monkeypatch.setattr(ChildHere, "asked", [])
    return given, built.directory


def _change(directory, change):
    saved_model = sniff(directory).proto
    change(saved_model.meta_graphs[0])
    (directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())


def _in_order(meta_graph):
    """Each copy of an op waits for the one before, as if an order said so."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    for name in [name for name in nodes if name.endswith("/shard_1")]:
        add_marked(nodes[name], name.replace("/shard_1", "/shard_0"))


def _on_another_host(meta_graph):
    for node in meta_graph.graph_def.node:
        node.device = "/job:worker/task:3/device:GPU:7"
    meta_graph.ClearField("saver_def")  # its variables have no values


def test_a_large_model_loads_with_one_op_of_each_kind(written):
    given, directory = written
    _change(directory, _on_another_host)
    assert prove_loads(given, directory).text == LOADS_ALIKE
    assert ChildHere.asked[0] < len(sniff(directory).proto.meta_graphs[0].graph_def.node) - 10


def test_a_large_model_in_order_loads_so_too(written):
    given, directory = written
    _change(directory, _in_order)
    _change(directory, _on_another_host)
    (meta_graph,) = sniff(directory).proto.meta_graphs
    assert any(MARK in node.attr for node in meta_graph.graph_def.node)
    assert prove_loads(given, directory).text == LOADS_ALIKE


def test_what_does_not_load_so_is_loaded_whole(written):
    def damage(meta_graph):
        _on_another_host(meta_graph)
        next(iter(meta_graph.signature_def.values())).outputs["loss"].name = "nothing:0"

    given, directory = written
    _change(directory, damage)
    proof = prove_loads(given, directory)
    assert (
        "nothing" in proof.defect
        and len(ChildHere.asked) == 2
        and ChildHere.asked[0] < ChildHere.asked[1]
    )


def test_a_model_of_objects_is_loaded_whole(written):
    _, directory = written
    _change(directory, lambda meta_graph: meta_graph.object_graph_def.nodes.add())
    meta_graph = sniff(directory).proto.meta_graphs[0]
    assert loadable_model.with_one_of_alike(meta_graph) is None

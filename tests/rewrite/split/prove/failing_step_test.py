"""A split step that doesn't run where the unsplit one does is an error, not a run left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphs.host.asked_child import ChildError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite import verify as verifying
from rewrite.emit import emit
from rewrite.verify import verify
from rewrite.verify_child import _outcome, _Runner
from rewrite.verify_messages import ChecksSoFar
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.split_model_test import _fed, _origins, _saved
from tests.rewrite.split.write.emission_test import (
    graph_def,
    model_with,
    saved_model_v1,
    with_another_rate,
)
from tests.rewrite.written_signature_test import write


def here(module, request, seconds, memory_bytes=None, environment=None):
    runner = _Runner(request)
    return ChecksSoFar([_outcome(runner, check, lambda _: None) for check in request.checks])


def saved_model_v2(folder):
    return _saved(folder / "given", 5), LoadOptions()


def spoil(graph, mark):
    """Asks for parts of another size than what is multiplied has."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op == "MatMul" and mark in node.name:
                node.attr["transpose_a"].b = not node.attr["transpose_a"].b


def spoiled(kind, folder):
    """A split model whose split step fails, the folder that it is emitted into, and feeds."""
    path, options = kind(folder)
    split = split_model(load(path, options), 2)
    source, made = split.source, folder / "emitted"
    spoil(source.graph_def, "/shard_1")
    if source.saved_model_dir:
        spoil(source.meta_graph_def.graph_def, "/shard_1")
        saved_model = sniff(source.saved_model_dir).proto
        saved_model.meta_graphs[0].CopyFrom(source.meta_graph_def)
        file = Path(source.saved_model_dir, "saved_model.pb")
        file.write_bytes(saved_model.SerializeToString())
        made.mkdir()
        emit(source, {next(iter(_origins(split))): ""}, made, {})
    else:
        spoil(source.split_graph, "/shard_1")
        made = split_and_built(split, made)
    if kind is saved_model_v2:
        x, y = (array.numpy() for array in _fed(5))
        return split, made, {"train_step_x:0": x, "train_step_y:0": y}
    return split, made, {"x:0": np.ones((5, 3), np.float32)}


def split_and_built(split, folder):
    """What a graph is emitted as; variables alone: no step of it runs."""
    path = folder.parent / "whole"
    path.mkdir()
    emit(split.given, {next(iter(_origins(split))): ""}, path, {})
    return path


@pytest.mark.parametrize("kind", [saved_model_v2, saved_model_v1, graph_def])
def test_only_the_split_step_fails(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(verifying, "ask_child", here)
    split, made, feeds = spoiled(kind, tmp_path)
    verified = verify(split.source, made, feeds, unsplit=split.given)
    assert any("only the split step fails" in each for each in verified.differing)
    assert verified.run.startswith("not equal")


def test_where_the_unsplit_step_fails_too_the_run_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(verifying, "ask_child", here)
    split, made, feeds = spoiled(saved_model_v1, tmp_path)
    verified = verify(split.source, made, feeds, unsplit=split.source)
    assert not verified.differing
    assert verified.run.startswith("not run")


def test_a_split_step_that_ends_the_process_differs(tmp_path, monkeypatch):
    split, made, feeds = spoiled(saved_model_v1, tmp_path)
    own = split.given.saved_model_dir

    def ask(module, request, seconds, memory_bytes=None, environment=None):
        if request.checks[0].given.model.directory != own:
            raise ChildError("it was killed by SIGSEGV")
        return here(module, request, seconds)

    monkeypatch.setattr(verifying, "ask_child", ask)
    verified = verify(split.source, made, feeds, unsplit=split.given)
    assert any(each.endswith("only the split step fails: it was killed by SIGSEGV")
               for each in verified.differing)  # fmt: skip


def graph_with_a_signature(folder):
    return write(folder), LoadOptions(fetch=("done:0",), batch_size=5)


def with_a_rate(folder):
    model_with(with_another_rate, str(folder / "given"))
    return str(folder / "given"), LoadOptions(signature="train_step", batch_size=5)


OTHERS = {
    graph_with_a_signature: "signature train_step (v1 Session): mean of step 2",
    with_a_rate: "signature other (v1 Session): loss of step 2",
    saved_model_v2: "signature train_step_whole (tf.saved_model.load): loss of step 2",
}


@pytest.mark.parametrize("is_spoiled", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_another_signature_than_the_run_gives_what_it_gave(kind, is_spoiled, tmp_path, monkeypatch):
    """What is wrong in the split model already is wrong in the emitted one, too."""
    monkeypatch.setattr(verifying, "ask_child", here)
    path, options = kind(tmp_path)
    split = split_model(load(path, options), 2)
    source, made = split.source, tmp_path / "emitted"
    if is_spoiled:
        spoil_unsplit(source)
    emit(source, {next(iter(_origins(split))): ""}, made, {})
    rng = np.random.default_rng(0)
    feeds = {spec.tensor: rng.uniform(size=(5, *spec.shape[1:])).astype(spec.dtype)
             for spec in source.feeds}  # fmt: skip
    verified = verify(source, str(made), feeds, unsplit=split.given)
    assert OTHERS[kind] in verified.compared
    assert any(each.startswith(OTHERS[kind]) for each in verified.differing) == is_spoiled
    assert verified.outputs_equal or is_spoiled


def spoil_unsplit(source):
    """Makes other functions of what the unsplit step computes of a layer."""
    spoiled_op = {"Tanh": "Sin", "Relu": "Softplus"}
    meta_graphs = [source.meta_graph_def]
    saved_model = sniff(source.saved_model_dir).proto if source.saved_model_dir else None
    graphs = [source.split_graph] if saved_model is None else saved_model.meta_graphs
    for graph in (source.graph_def, *(each.graph_def for each in meta_graphs), *graphs):
        graph = getattr(graph, "graph_def", graph)
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
        for node in nodes:
            if node.op in spoiled_op and "shard" not in node.name:
                node.op = spoiled_op[node.op]
    if saved_model is not None:
        file = Path(source.saved_model_dir, "saved_model.pb")
        file.write_bytes(saved_model.SerializeToString())

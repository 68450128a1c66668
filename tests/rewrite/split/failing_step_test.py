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
from rewrite.split.split_model import split_model
from rewrite.verify import verify
from rewrite.verify_child import _outcome, _Runner
from rewrite.verify_messages import ChecksSoFar
from tests.rewrite.split.emission_test import graph_def, saved_model_v1
from tests.rewrite.split.split_model_test import _fed, _origins, _saved


def here(module, request, seconds):
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

    def ask(module, request, seconds):
        if request.checks[0].given.model.directory != own:
            raise ChildError("it was killed by SIGSEGV")
        return here(module, request, seconds)

    monkeypatch.setattr(verifying, "ask_child", ask)
    verified = verify(split.source, made, feeds, unsplit=split.given)
    assert any(each.endswith("only the split step fails: it was killed by SIGSEGV")
               for each in verified.differing)  # fmt: skip

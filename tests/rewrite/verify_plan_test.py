"""Inputs that a comparison makes up."""

import dataclasses

import pytest

from graphs.errors import ModelError
from graphs.source_model import Initialization, Signature, SourceModel, TensorSpec
from rewrite import verify_plan
from rewrite.verify_plan import Plan
from tests.rewrite.graphs import add_op, graph_pb2  # type: ignore[attr-defined]


@pytest.fixture
def source():
    graph = graph_pb2.GraphDef()
    graph.versions.producer = 1882
    add_op(graph.node, "x", "Placeholder").attr["shape"].shape.unknown_rank = True
    add_op(graph.node, "y", "Neg", ("x",))
    x, y = TensorSpec("x:0", "float32", None), TensorSpec("y:0", "float32", None)
    return SourceModel(
        path="model",
        kind="saved_model_v1",
        graph_def=graph,
        feeds=(),
        fetches=("y:0",),
        mode="inference",
        step_origin="",
        signatures={"f": Signature({"x": x}, {"y": y})},
        variables=(),
        initialization=Initialization(),
        saved_model_dir="given",
        meta_graph_def=None,
        guessed=(),
    )


@pytest.mark.parametrize("wanted", [0, 2])
def test_an_input_of_unknown_rank_gets_the_first_that_runs(source, tmp_path, monkeypatch, wanted):
    made = verify_plan.generate_feeds  # type: ignore[attr-defined]

    def picky(graph_def, specs, fetches, seed):
        if len(specs[0].shape) != wanted:
            raise ModelError("inferring tensor shapes")
        return made(graph_def, specs, fetches, seed)

    monkeypatch.setattr(verify_plan, "generate_feeds", picky)
    plan = Plan(source, "placed", tmp_path, is_remote=False)
    _, check, *_ = plan.checks({}, None)
    assert check.label == "signature f (v1 Session)"
    assert [array.shape for array in check.given.feeds.values()] == [(2,) * wanted]
    assert plan.left_out == []


def test_what_no_rank_suits_is_listed_with_the_first_reason(source, tmp_path, monkeypatch):
    def never(graph_def, specs, fetches, seed):
        raise ModelError(f"rank {len(specs[0].shape)}")

    monkeypatch.setattr(verify_plan, "generate_feeds", never)
    plan = Plan(source, "placed", tmp_path, is_remote=False)
    list(plan.checks({}, None))
    assert plan.left_out == ["signature f: no inputs could be made up: rank 0"]


def test_a_split_step_which_refuses_an_empty_batch_is_not_fed_one(source, tmp_path):
    x, y = TensorSpec("x:0", "float32", (-1, 2)), TensorSpec("y:0", "float32", (-1, 2))
    source = dataclasses.replace(source, signatures={"f": Signature({"x": x}, {"y": y})})
    labels = [
        [check.label for check in plan.checks({}, None) if "empty batch" in check.label]
        for plan in (Plan(source, "placed", tmp_path, False, each) for each in (None, source))
    ]
    assert labels == [["signature f (v1 Session, empty batch)"], []]


def test_a_function_that_is_called_by_its_name_is_no_op(source, tmp_path):
    """As the loop of tf.nn.ctc_loss calls its body."""
    called = source.graph_def.library.function.add().signature
    called.name = "body"
    add_op(source.graph_def.node, "called", "body", ("x",))
    source = dataclasses.replace(source, kind="saved_model_v2")
    for is_stateful in (False, True):
        called.is_stateful = is_stateful
        check, *_ = Plan(source, "placed", tmp_path, is_remote=False).checks({}, None)
        assert check.given.model.has_only_variables != is_stateful

"""The page's tables: pairs, their mean, what is run again; which ops carry gradients."""

import pytest

from tests.builders import Machine, Op, build_problem
from tests.order import activations, pairs, pipeline


def _cell(order, seconds, **more):
    cell = {"model": "rnnlm", "cluster": "k80x2", "order": order, "step_seconds": seconds}
    return {**cell, "found_shards": 2, "trials": 1000, "commit": "abc", **more}


def test_pairs_that_are_whole_are_rows_with_their_mean():
    cells = [_cell("none", 0.2), _cell("edges", 0.1), _cell("none", 1.0, model="transformer")]
    made = pairs.table_of(cells)
    assert made["rows"][0] == [
        "rnnlm", "k80x2", 200.0, 100.0, "2, 2", "1,000, 1,000", -50.0, "abc",
    ]  # fmt: skip
    assert made["rows"][1][6] == pytest.approx(-50.0)
    assert made["cells"] == cells and pairs.table_of([])["rows"] == []


@pytest.mark.parametrize(("again", "ran"), [(False, ["edges"]), (True, ["none", "edges"])])
def test_only_what_is_missing_is_run(monkeypatch, again, ran):
    seen, kept = [], []

    def bench(model, cluster, order):
        seen.append(order)
        return _cell(order, 1.0)

    monkeypatch.setattr(pairs, "bench", bench)
    pairs.run(["rnnlm"], ["k80x2"], again, [_cell("none", 2.0)], kept.append)
    assert seen == ran
    assert len(kept[-1]) == 2


def test_gradients_are_what_is_added_up_for_updates():
    ops = [
        Op("weights", outputs=(0,), type="VarHandleOp"),
        Op("x", outputs=(8,)),
        Op("g0", inputs=("x:0",), outputs=(4,), type="MatMul"),
        Op("g1", inputs=("x:0",), outputs=(4,), type="MatMul"),
        Op("sum", inputs=("g0:0", "g1:0"), outputs=(4,), type="AddV2"),
        Op("update", inputs=("weights:0", "sum:0"), type="ResourceApplyAdam"),
    ]
    problem = build_problem(ops, Machine(1))
    assert activations.gradients(problem).tolist() == [False, False, True, True, True, False]


def test_a_pipeline_in_order_has_the_bubble_that_it_must_have():
    made = pipeline.made()
    bubbles = {
        ops: [row[4] for row in made["rows"] if row[1:3] == [ops, "edges"]]
        for ops in ("one op", "two ops")
    }
    assert bubbles["one op"] == pytest.approx([3 / 11] * 3, 0.1)
    assert max(bubbles["two ops"]) < 0.2

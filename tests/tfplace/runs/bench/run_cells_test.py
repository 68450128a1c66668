"""Tests of runs.bench.run_cells: nothing is done twice, failures and Ctrl-C cost nothing."""

import json
import signal

import pytest

from graphs.errors import ModelError
from tfplace.runs.bench import run_cells
from tfplace.runs.bench.run_cells import BenchRun, Grid, read_rows
from tfplace.runs.executors.program import Ended

ROW_KEYS = {
    "model", "cluster", "algorithm", "seed", "max_trials", "budget_seconds", "shards", "order",
    "memory_reserve", "trials", "infeasible_trials", "seconds", "step_seconds", "feasible",
    "single_step_seconds", "lower_bound_seconds", "history",
}  # fmt: skip
GRID = Grid(["good", "bad"], ["k80x2"], ["random", "post"], [1, 2], 10, 60.0, parallel=2)


class Scripted:
    """Cells that answer at once; each that ran is noted. Some end badly."""

    def __init__(self):
        self.ran = []

    def run(self, work):
        (request,) = map(json.loads, work.arguments)
        self.ran.append((request["algorithm"], request["seed"]))
        assert request["instance"] == "{instance}" and work.folders == {"instance": "good"}
        assert work.time_limit_seconds == 2 * request["budget_seconds"] + 600.0
        row = {"trials": 10, "step_seconds": 1.0, "num": len(self.ran)}
        return Ended(0, f"said by a library\n{json.dumps(row)}\n".encode(), "")

    def stop(self):
        pass


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a grid; returns the bench and what ran. The models "bad" and "broken" can't be read."""

    class Instances:
        def __init__(self, scratch, memory_reserve, num_shards):
            pass

        def folder(self, model, cluster):
            if model == "bad":
                raise ModelError("reading bad: it is no model")
            if model == "broken":
                raise ZeroDivisionError("float division")
            return model

    def run(grid, earlier=(), tell=lambda *row: None):
        executor = Scripted()
        bench = BenchRun(grid, str(tmp_path / "bench.json"), earlier, executor, tell)
        bench.run(grid.parallel)
        return bench, executor.ran

    monkeypatch.setattr(run_cells, "PreparedInstances", Instances)
    return run


def test_a_failing_model_is_a_row_and_the_rest_goes_on(run, tmp_path):
    told = []
    bench, _ = run(GRID, tell=lambda row, done, total: told.append((done, total)))
    assert not bench.is_interrupted
    assert [(r["model"], r["algorithm"], r["seed"]) for r in bench.done] == [
        (model, algorithm, seed)
        for model in ("good", "bad")
        for algorithm in ("random", "post")
        for seed in (1, 2)
    ]
    assert [r.get("error") for r in bench.done] == [None] * 4 + ["reading bad: it is no model"] * 4
    assert told == [(number, 8) for number in range(1, 9)]
    assert run_cells.num_failed(bench.done) == 4
    assert all(row.keys() == ROW_KEYS | {"error"} for row in bench.done[4:])
    assert read_rows(str(tmp_path / "bench.json")) == bench.done


def test_a_defect_in_one_model_does_not_end_the_others(run):
    bench, _ = run(Grid(["broken", "good"], ["k80x2"], ["post"], [1], 10, 60.0))
    assert bench.done[0]["error"] == "a defect of tfplace: ZeroDivisionError: float division"
    assert bench.done[1]["step_seconds"] == 1.0


def test_what_is_named_twice_runs_once(run):
    bench, ran = run(Grid(["good", "good"], ["k80x2"], ["post"], [1, 1], 10, 60.0))
    assert ran == [("post", 1)] and len(bench.rows) == 1


def test_only_what_is_missing_or_failed_runs_again(run, tmp_path):
    first = run(GRID)[0].done
    others = [{**first[0], "max_trials": 99}, {**first[-1], "memory_reserve": 0.2}]
    kept = [row for row in first if (row["algorithm"], row["seed"]) != ("post", 2)]
    again, ran = run(GRID, [others[0], *kept, others[1]])
    assert ran == [("post", 2)]
    assert again.done[:3] == first[:3] and again.done[4:] == first[4:]
    assert json.loads((tmp_path / "bench.json").read_text()) == [*again.done, *others]


def test_ctrl_c_keeps_what_is_done(run, tmp_path):
    grid = Grid(["good"], ["k80x2"], ["post"], list(range(50)), 10, 60.0)

    def press(row, done, total):
        if done == 3:
            signal.raise_signal(signal.SIGINT)

    bench, _ = run(grid, tell=press)
    assert bench.is_interrupted
    assert 3 <= len(bench.done) < 50
    assert read_rows(str(tmp_path / "bench.json")) == bench.done

"""Tests of runs.bench.run_cells: nothing is done twice, failures and Ctrl-C cost nothing."""

import json
import signal

import pytest

from graphs.errors import ModelError
from tfplace.runs.bench import run_cells
from tfplace.runs.bench.grid import Grid, read_rows

ROW_KEYS = {
    "model", "cluster", "algorithm", "seed", "trials", "seconds", "step_seconds", "feasible",
    "single_step_seconds", "lower_bound_seconds", "history",
}  # fmt: skip
GRID = Grid(["good", "bad"], ["k80x2"], ["random", "post"], [1, 2], 10, 60.0, parallel=2)


@pytest.fixture
def asked(monkeypatch):
    """The requests of cells, which answer at once; the model "bad" can't be read."""
    requests = []

    def run_cell_process(executor, request):
        requests.append((request["algorithm"], request["seed"]))
        return {"trials": 10, "step_seconds": 1.0, "num": len(requests)}

    class Tasks:
        def __init__(self, scratch, memory_reserve):
            pass

        def folder(self, model, cluster):
            if model == "bad":
                raise ModelError("reading bad: it is no model")
            if model == "broken":
                raise ZeroDivisionError("float division")
            return model

    monkeypatch.setattr(run_cells, "run_cell_process", run_cell_process)
    monkeypatch.setattr(run_cells, "Tasks", Tasks)
    return requests


def test_a_failing_model_is_a_row_and_the_rest_goes_on(asked, tmp_path):
    path = str(tmp_path / "bench.json")
    told = []
    result = run_cells.run_grid(GRID, path, [], lambda row, done, total: told.append((done, total)))
    assert not result.interrupted
    assert [(r["model"], r["algorithm"], r["seed"]) for r in result.rows] == [
        (model, algorithm, seed)
        for model in ("good", "bad")
        for algorithm in ("random", "post")
        for seed in (1, 2)
    ]
    assert [r.get("error") for r in result.rows] == [None] * 4 + ["reading bad: it is no model"] * 4
    assert told == [(number, 8) for number in range(1, 9)]
    assert run_cells.num_failed(result.rows) == 4
    assert all(row.keys() >= ROW_KEYS for row in result.rows[4:])
    assert read_rows(path) == result.rows


def test_a_defect_in_one_model_does_not_end_the_others(asked, tmp_path):
    grid = Grid(["broken", "good"], ["k80x2"], ["post"], [1], 10, 60.0)
    result = run_cells.run_grid(grid, str(tmp_path / "b.json"), [], lambda *row: None)
    assert "ZeroDivisionError" in result.rows[0]["error"]
    assert result.rows[1]["step_seconds"] == 1.0


def test_only_what_is_missing_or_failed_runs_again(asked, tmp_path):
    path = tmp_path / "bench.json"
    first = run_cells.run_grid(GRID, str(path), [], lambda *row: None).rows
    other = {**first[0], "max_trials": 99}
    kept = [row for row in first if (row["algorithm"], row["seed"]) != ("post", 2)]
    asked.clear()
    again = run_cells.run_grid(GRID, str(path), [*kept, other], lambda *row: None).rows
    assert asked == [("post", 2)]
    assert [row.get("num") for row in again[:3]] == [row.get("num") for row in first[:3]]
    assert json.loads(path.read_text())[-1] == other


def test_ctrl_c_keeps_what_is_done(asked, tmp_path):
    path = str(tmp_path / "bench.json")
    grid = Grid(["good"], ["k80x2"], ["post"], list(range(50)), 10, 60.0)

    def press(row, done, total):
        if done == 3:
            signal.raise_signal(signal.SIGINT)

    result = run_cells.run_grid(grid, path, [], press)
    assert result.interrupted
    assert 3 <= len(result.rows) < 50
    assert read_rows(path) == result.rows

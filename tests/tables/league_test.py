"""The league on tiny made-up inputs, with a program in place of the rivals'."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.reference_simulator import reference_run
from tests.tables import league
from tests.tables.league_loads import Pipeline, full_pipeline, is_contiguous, most_load
from tests.tables.league_orders import (
    Case,
    in_our_order,
    in_their_order,
    least_seconds,
    problem_of,
    ramp,
)
from tests.tables.planner_inputs import partitioning_input, piper_input

MEMORY = {"memoryUsageA": 0.0, "memoryUsageB": 5.0}
PIPER = {
    "maxDevices": 2, "maxMemoryPerDevice": 1e9, "bandwidth": 1e6,
    "nodes": [
        {"id": i, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 2.0, **MEMORY}]}}
        for i in range(3)
    ],
    "edges": [{"sourceId": i, "destId": i + 1, "communicationCost": 500.0} for i in (0, 1)],
}  # fmt: skip
PARTITIONING = {
    "maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1,
    "nodes": [
        {"id": i, "supportedOnFpga": True, "cpuLatency": 50, "fpgaLatency": 2, "size": 6.0}
        for i in range(3)
    ],
    "edges": [{"sourceId": 0, "destId": i, "cost": 0.5} for i in (1, 2)],
}  # fmt: skip
SMALL = Case(2, 2, (1, 1, 1), 0, 4)


def makespan(pipeline, plan):
    problem, keys = full_pipeline(pipeline)
    of_op = {f"layer_{i}": plan[key] for i, key in enumerate(keys)}
    for number, (_, user, _) in enumerate(pipeline.planned.edges):
        of_op[f"edge_{number}"] = plan[user]
    return reference_run(problem, np.array([of_op[name] for name in problem.graph.op_names]))[0]


def test_the_load_of_a_full_pipeline():
    planned = piper_input(json.loads(json.dumps(PIPER)))
    pipeline = Pipeline(planned, each_edge=True, forward=frozenset(range(3)))
    plan = {0: 0, 1: 0, 2: 1}
    assert most_load(pipeline, plan) == pytest.approx(2e-3 + 2e-3 + 0.5e-3)
    assert makespan(pipeline, plan) == pytest.approx(4.5e-3)
    assert is_contiguous(pipeline, plan) and not is_contiguous(pipeline, {0: 0, 1: 1, 2: 0})


def test_an_output_leaves_its_device_once_and_a_host_pays_nothing():
    planned = partitioning_input(PARTITIONING)
    pipeline = Pipeline(planned, each_edge=False, forward=frozenset(range(3)))
    assert most_load(pipeline, {0: 1, 1: 2, 2: 2}) == pytest.approx(4e-3 + 0.5e-3)
    assert most_load(pipeline, {0: 1, 1: 2, 2: 0}) == pytest.approx(50e-3)
    assert makespan(pipeline, {0: 1, 1: 2, 2: 2}) == pytest.approx(4.5e-3)


def test_orders_of_a_small_pipeline():
    assert ramp(SMALL) == 1 and least_seconds(SMALL) == 7
    assert in_our_order(SMALL) == (7.0, 7.0)  # stage 0 waits for what comes back
    one_forward_one_backward = [1, 2, 2, 4, 4, 6, 3, 5, 5, 7, 6, 7]  # F, B, W by stage and batch
    assert in_their_order(SMALL, one_forward_one_backward) == 7.0
    backward_at_once = [1, 5, 2, 6, 3, 8, 2.5, 7, 4, 9, 4, 8]
    assert in_their_order(SMALL, backward_at_once) > 7.0
    small = dataclasses.replace(SMALL, memory=2)
    assert in_their_order(small, one_forward_one_backward) == float("inf")
    problem, stage = problem_of(SMALL)
    assert problem.graph.tensor_bytes[0] == 0 and stage.tolist().count(1) == 6


def test_zero_bubble_by_a_program_of_a_checkout(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    there = checkout / "megatron" / "core" / "pipeline_parallel"
    there.mkdir(parents=True)
    (there / "pulp.py").write_text("")
    (there / "auto_schedule.py").write_text(
        "class GraphConfig:\n    def __init__(self, **_): pass\n"
        "class Graph:\n    @staticmethod\n    def build_graph(*_): return None\n"
        "def initial_solution(graph, print_result):\n"
        "    return 7, None, [1, 2, 2, 4, 4, 6, 3, 5, 5, 7, 6, 7]\n"
    )
    words = "-c user.name=a -c user.email=b"
    for command in ("init -q", "add -A", f"{words} commit -qm x"):
        subprocess.run(["git", *command.split()], cwd=checkout, check=True)
    monkeypatch.setattr(league, "CASES", [SMALL])
    monkeypatch.setitem(league.COMMITS, "zero_bubble", "HEAD")
    page = tmp_path / "planners.md"
    page.write_text("<!-- table: planners -->\n<!-- end -->\n")
    (tmp_path / "results").mkdir()
    league.main([f"--zero_bubble={checkout}", f"--pulp_python={sys.executable}"], page)
    result = json.loads((tmp_path / "results" / "planners.json").read_text())
    assert result["rows"] == [
        ["zero bubble, greedy", "2 x 2, 1/1/1, memory 4", 7, 7.0, 1.0, 7.0, 7.0, 1.0, None, None,
         "no step is shorter"]
    ]  # fmt: skip
    assert "| zero bubble, greedy |" in page.read_text()


def test_what_a_rival_fails_at_is_left_out(tmp_path, capsys):
    limits = league.Limits(rival_seconds=30.0, answers=tmp_path)
    assert league.answer([sys.executable, "nothing.py"], "", tmp_path, limits) is None
    assert "CalledProcessError" in capsys.readouterr().err
    (tmp_path / "says.py").write_text("print('working'); print('{\"seconds\": 2}')")
    assert league.answer([sys.executable, "says.py"], "x", tmp_path, limits) == {"seconds": 2}
    (tmp_path / "says.py").unlink()
    assert league.answer([sys.executable, "says.py"], "x", tmp_path, limits) == {"seconds": 2}


def test_a_plan_is_searched_and_compared_with_a_rivals():
    planned = piper_input(json.loads(json.dumps(PIPER)))
    pipeline = Pipeline(planned, each_edge=True, forward=frozenset(range(3)))
    limits = league.Limits(simulated_ops=1)
    row = league.planners_row("Piper", "three", pipeline, {0: 0, 1: 0, 2: 1}, 4.5, limits)
    assert row[2:5] == [4.5, pytest.approx(4.5), pytest.approx(1.0)]
    assert row[7] <= 1.0 + 1e-9 and row[-1] == ""
    with pytest.raises(ValueError, match="it says 9"):
        league.planners_row("Piper", "three", pipeline, {0: 0, 1: 0, 2: 1}, 9.0, limits)

"""A search on all devices begins with what half and a quarter of them reached."""

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, unrolled_lstm
from tfplace.algorithms.placers.legal import legal
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.device_counts import found_on_fewer
from tfplace.choosing.memory_limit import num_counted
from tfplace.choosing.solve import solve
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.search.instance import Instance
from tfplace.search.search import Limits
from tfplace.simulation.evaluator import SimulatingEvaluator


def _instance(num_devices, pin=-1):
    ops = [Op(f"tower{i}", pin=pin) for i in range(8)]
    machine = Machine(num_devices, types=["GPU"] * num_devices)
    problem = build_problem(ops, machine)
    return Instance(problem, legal(problem, np.zeros(8, np.int32)))


def _known(instance):
    outcome = SimulatingEvaluator(instance.problem).evaluate(instance.given[None])[0]
    return [Candidate("given", instance.given, outcome)]


@pytest.mark.parametrize(("num_devices", "counts"), [(8, [2, 4]), (4, [2]), (3, []), (1, [])])
def test_half_and_a_quarter_come_first(num_devices, counts):
    instance = _instance(num_devices)
    found, num_trials = found_on_fewer(instance, _known(instance), Limits(20.0, 2000), 0)
    assert [num_counted(instance.problem, each.device_of_op) for each in found] == counts
    assert [each.step_seconds for each in found] == [8 / count for count in counts]
    assert bool(num_trials) == bool(counts) and num_trials <= 2000 * 0.3 + 2


@pytest.mark.parametrize("limits", [Limits(0.0), Limits(20.0, 100)])
def test_too_short_a_search_is_not_shared(limits):
    instance = _instance(8)
    assert found_on_fewer(instance, _known(instance), limits, 0) == ([], 0)


def test_pins_that_need_another_device_leave_it_out():
    instance = _instance(4, pin=3)
    found, _ = found_on_fewer(instance, _known(instance), Limits(20.0, 2000), 0)
    assert found == []


def test_a_search_on_all_ends_no_higher_than_on_half():
    machine = Machine(8, 1e-4, 1e9, types=["GPU"] * 8)
    problem = unrolled_lstm(2, 4, machine)
    given = np.zeros(problem.num_ops, np.int32)
    solved = solve(
        problem, given, OptimizeOptions(ProblemOptions(""), max_trials=3000, budget_seconds=20.0)
    )
    steps = {each.name: each.step_seconds for each in solved.searched.candidates}
    assert "found first on 4" in steps
    assert min(steps.values()) <= steps["found first on 4"]

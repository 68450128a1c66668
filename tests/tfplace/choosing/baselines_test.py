"""Tests of the baselines as candidates."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np
import pytest

from graphs.executor_model import depth_first
from graphs.problem import Infeasible
from tests.builders import Machine, Op, build_problem, random_problem
from tfplace.algorithms.placers.legal import legal
from tfplace.choosing.baselines import Candidate, baseline_candidates, best_single
from tfplace.search.instance import Instance
from tfplace.simulation.evaluator import SimulatingEvaluator


def test_one_that_does_not_fit_has_the_placement_that_its_outcome_is_of():
    problem = build_problem(
        [Op("small"), Op("large", (np.inf, 1.0), persistent=9)], Machine(2, memory=8)
    )
    candidate = best_single(
        Instance(problem, np.zeros(2, np.int32)), SimulatingEvaluator(problem, 1)
    )
    assert isinstance(candidate.outcome, Infeasible)
    assert candidate.outcome.peak_bytes == (0, 9)
    assert candidate.device_of_op.tolist() == [0, 1]


@pytest.mark.parametrize("max_trials", [7, 5000])
def test_limited_trials_do_not_depend_on_the_clock(max_trials, monkeypatch):
    """Local search, which goes on for as long as it may, ends after as many trials everywhere."""
    problem = random_problem(np.random.default_rng(1), max_ops=60)
    instance = Instance(problem, legal(problem, np.zeros(problem.num_ops, np.int32)))

    def candidates(now) -> list[Candidate]:
        monkeypatch.setattr(time, "monotonic", now)
        return baseline_candidates(
            instance, SimulatingEvaluator(problem, 1), 60.0, seed=1, max_trials=max_trials
        )

    slow = itertools.count(step=0.002)
    quick = itertools.count(step=1e-6)
    at_each = [candidates(lambda ticks=ticks: float(next(ticks))) for ticks in (slow, quick)]
    for one, other in zip(*at_each, strict=True):
        assert one.device_of_op.tolist() == other.device_of_op.tolist()
    assert at_each[0][-1].name == "local_search"


@pytest.mark.parametrize(
    ("seconds", "is_measured", "device"),
    [(0.98, True, 0), (0.9, True, 1), (0.98, False, 1), (1.1, True, 0)],
)
def test_devices_of_a_type_that_were_measured_to_be_alike_are_one(seconds, is_measured, device):
    problem = build_problem([Op("a", (1.0, seconds))] * 2, Machine(2, types=("CPU", "CPU")))
    if is_measured:
        executor = depth_first(problem.graph.op_types, 2)
        problem = dataclasses.replace(problem, executor=executor)
    instance = Instance(problem, np.zeros(2, np.int32))
    found = baseline_candidates(instance, SimulatingEvaluator(problem, 1), 60.0, 1, max_trials=5)
    single = next(each for each in found if each.name == "single")
    assert single.device_of_op.tolist() == [device] * 2

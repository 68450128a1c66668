"""Tests of the baselines as candidates."""

from __future__ import annotations

import numpy as np

from graphs.placement import Infeasible
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.baselines import best_single
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

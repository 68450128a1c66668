"""Tests of solving small graphs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import Machine, chain, two_towers
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.small_graph import as_candidate, proven_bound, solve_small
from tfplace.simulation.evaluator import SimulatingEvaluator


def test_small_graph_is_solved_from_what_is_known() -> None:
    problem = two_towers(machine=Machine(2))
    evaluator = SimulatingEvaluator(problem, 1)
    one = np.ones(problem.num_ops, dtype=np.int32)
    single = Candidate("single", one, evaluator.evaluate(one[None])[0])
    solved = solve_small(problem, single, 60.0)
    assert solved is not None
    assert solved.is_proven
    (candidate,) = as_candidate(solved, evaluator)
    assert (candidate.name, candidate.step_seconds) == ("optimum", 6.0)
    assert proven_bound(problem, solved) == 6.0


def test_large_graphs_and_single_devices_are_left_alone() -> None:
    assert solve_small(chain(50), None, 60.0) is None
    assert solve_small(chain(3, machine=Machine(1)), None, 60.0) is None
    problem = chain(50)
    assert as_candidate(None, SimulatingEvaluator(problem, 1)) == []
    assert proven_bound(problem, None) == pytest.approx(50.0)

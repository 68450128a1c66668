"""The lower bound: the best of three bounds, each of which has tests of its own beside this one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem, chain, unrolled_lstm
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.simulation.simulator import Simulator


@settings(max_examples=150, deadline=None)
@given(small_problems())
def test_no_placement_beats_the_bound(problem: Problem) -> None:
    assert lower_bound_seconds(problem) <= optimum_seconds(problem)


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        (chain(3), 3.0),  # by its path
        (build_problem([Op(f"op{index}") for index in range(4)]), 2.0),  # by the load
    ],
)
def test_the_best_bound_counts(problem: Problem, seconds: float) -> None:
    assert lower_bound_seconds(problem) == pytest.approx(seconds)
    # Sums in another order come out higher by rounding; the bound stays below all of them.
    assert lower_bound_seconds(problem) < seconds == optimum_seconds(problem)


def test_a_recurrent_step_of_one_cell_has_nothing_to_gain_from_more_devices() -> None:
    problem = unrolled_lstm(1, 1, machine=Machine(3, latency=3e-5, bandwidth=1e10))
    all_seconds = problem.op_seconds[:, 0].sum()
    assert lower_bound_seconds(problem) == pytest.approx(all_seconds)
    one_device = np.zeros(problem.num_ops, dtype=np.int32)
    assert Simulator(problem, num_threads=1).run(one_device)[0] == pytest.approx(all_seconds)


def test_too_little_memory_for_all_ops_together_is_infeasible() -> None:
    ops = [Op("a", persistent=6), Op("b", persistent=6), Op("c", persistent=6)]
    # 20 bytes hold three times six, though no two devices of 10 bytes do: the bound can't see that.
    assert lower_bound_seconds(build_problem(ops, Machine(2, memory=10))) == pytest.approx(1.5)
    assert lower_bound_seconds(build_problem(ops, Machine(2, memory=8))) == np.inf


def test_an_op_without_a_kernel_is_infeasible() -> None:
    assert lower_bound_seconds(build_problem([Op("a", (np.inf, np.inf)), Op("b")])) == np.inf


def test_an_empty_graph_takes_no_time() -> None:
    assert lower_bound_seconds(build_problem([])) == 0.0

"""The load bound: valid for any weights, and the best ones found by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems
from tfplace.bounds.load_bound import (
    DualWeights,
    Load,
    best_weights,
    dual_value,
    least_costs,
    load_of,
    may_fit,
)
from tfplace.bounds.relaxation import device_classes


def _load(problem: Problem, counted: np.ndarray | None = None) -> Load:
    counted = np.ones(problem.num_ops, dtype=bool) if counted is None else counted
    return load_of(device_classes(problem), problem.graph, counted)


def _bound(problem: Problem) -> float:
    return best_weights(_load(problem))[0]


@settings(max_examples=100, deadline=None)
@given(small_problems(may_be_stuck=False), st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6))
def test_no_placement_beats_any_weights(problem: Problem, numbers: list[float]) -> None:
    load = _load(problem)
    best, tried = best_weights(load)
    optimum = optimum_seconds(problem) * (1.0 + 1e-9)
    assert best == max(dual_value(load, weights)[0] for weights in tried) <= optimum
    size = len(load.slots)
    per_second = np.array(numbers[:size]) + 1e-3
    per_second /= (per_second * load.slots).sum()
    assert dual_value(load, DualWeights(per_second, np.array(numbers[-size:])))[0] <= optimum


@settings(max_examples=100, deadline=None)
@given(small_problems())
def test_what_may_not_fit_does_not_fit(problem: Problem) -> None:
    load = _load(problem)
    if np.isfinite(load.seconds).any(axis=1).all() and not may_fit(load):
        assert optimum_seconds(problem) == np.inf


def test_dual_value_by_hand() -> None:
    # Two units of 4 and 6 s on the CPU, 1 and 3 s on the GPU; 2 and 5 bytes, of which 8 and 3 fit.
    load = Load(
        seconds=np.array([[4.0, 1.0], [6.0, 3.0]]),
        bytes=np.array([2.0, 5.0]),
        slots=np.array([1.0, 2.0]),
        room_bytes=np.array([8.0, 3.0]),
    )
    weights = DualWeights(np.array([0.2, 0.4]), np.array([0.0, 0.1]))  # 0.2 * 1 + 0.4 * 2 = 1
    value, seconds, placed_bytes = dual_value(load, weights)
    # Unit 0: min(0.8, 0.4 + 0.2); unit 1: min(1.2, 1.2 + 0.5); the room costs 0.3.
    assert value == pytest.approx(0.6 + 1.2 - 0.3)
    assert (seconds.tolist(), placed_bytes.tolist()) == ([6.0, 1.0], [5.0, 2.0])


def test_work_is_spread_by_what_each_device_is_good_at() -> None:
    # Four seconds on the GPU or eight on the CPU: 8/3 on both, not 4/2.
    problem = build_problem([Op(f"op{index}", (2.0, 1.0)) for index in range(4)])
    assert _bound(problem) == pytest.approx(8.0 / 3.0)
    # The weights are one third for the CPU, two thirds for the GPU: an op costs 2/3 on either.
    _, (weights, *_) = best_weights(_load(problem))
    np.testing.assert_allclose(weights.per_second, [1 / 3, 2 / 3])


def test_colocated_ops_are_one_item() -> None:
    # Apart: the first is quick on device 0 and the second on device 1. Together: 11 on either.
    ops = [Op("a", (1.0, 10.0), colocation=0), Op("b", (10.0, 1.0), colocation=0)]
    problem = build_problem(ops)
    np.testing.assert_array_equal(_load(problem).seconds, [[11.0, 11.0]])
    assert _bound(problem) == pytest.approx(11.0 / 2.0)


def test_memory_forces_work_to_where_it_is_slow() -> None:
    # The GPU holds one of four; the CPU takes 5 s for each of the others.
    ops = [Op(f"op{index}", (5.0, 0.1), persistent=10) for index in range(4)]
    problem = build_problem(ops, Machine(2, memory=(100, 10)))
    assert _bound(problem) == pytest.approx(15.0, rel=1e-3)
    assert optimum_seconds(problem) == 15.0


def test_slots_share_a_devices_work() -> None:
    problem = build_problem([Op(f"op{index}") for index in range(6)], Machine(1, slots=3))
    assert _bound(problem) == pytest.approx(2.0)
    assert optimum_seconds(problem) == 2.0


def test_ops_that_do_not_count_still_keep_their_unit_off_a_device() -> None:
    ops = [
        Op("a", (1.0, 2.0), colocation=0),
        Op("b", (np.inf, 4.0), colocation=0),
        Op("c", (8.0, np.inf)),
    ]
    load = _load(build_problem(ops), np.array([True, False, False]))
    np.testing.assert_array_equal(load.seconds, [[np.inf, 2.0], [0.0, np.inf]])


def test_least_costs_by_hand() -> None:
    weights = DualWeights(np.array([0.5, 0.0]), np.zeros(2))
    seconds = np.array([[4.0, 9.0], [4.0, np.inf]])
    np.testing.assert_array_equal(least_costs(seconds, weights), [0.0, 2.0])


def test_units_that_ask_for_the_same_devices_must_fit_there() -> None:
    # Each fits the GPU alone, and all fit on CPU and GPU; but two of them have only the GPU.
    ops = [Op("a", (np.inf, 1.0), persistent=6), Op("b", (np.inf, 1.0), persistent=6), Op("c", 1.0)]
    assert not may_fit(_load(build_problem(ops, Machine(2, memory=10))))
    assert may_fit(_load(build_problem(ops, Machine(2, memory=12))))

"""The window bound: valid for every placement, and tight where no path has all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems
from tfplace.bounds.load_bound import DualWeights, best_weights, best_window, load_of, window_bound
from tfplace.bounds.lower_bound import heads_and_tails, lower_bound_seconds
from tfplace.bounds.relaxation import device_classes


@settings(max_examples=80, deadline=None)
@given(small_problems(may_be_stuck=False))
def test_no_placement_beats_a_window(problem: Problem) -> None:
    classes = device_classes(problem)
    everything = load_of(classes, problem.graph, np.ones(problem.num_ops, dtype=bool))
    _, weights = best_weights(everything)
    head, tail, _ = heads_and_tails(problem, classes, weights)
    window = window_bound(classes, problem.graph, head, tail, weights)
    assert window <= optimum_seconds(problem) * (1.0 + 1e-9)


def test_the_best_window_by_hand() -> None:
    # Four ops of 1 s on two equal devices; two of them start after 3 s, one has 5 s after it.
    problem = build_problem([Op(f"op{index}") for index in range(4)])
    head, tail = np.array([0.0, 3.0, 3.0, 0.0]), np.array([0.0, 0.0, 5.0, 0.0])
    even = DualWeights(np.array([0.5]), np.zeros(1))
    # All: 4 / 2. From 3 on: 3 + 2 / 2. Up to 5 before the end: 5 + 1 / 2. Both: 3 + 5 + 1 / 2.
    assert best_window(device_classes(problem), head, tail, [even]) == (8.5, 3.0, 5.0)


def test_ops_of_a_window_get_weights_of_their_own() -> None:
    # Op a is quick on the CPU, b on the GPU: weights that spread all of it evenly suit neither.
    problem = build_problem([Op("a", (1.0, 9.0)), Op("b", (9.0, 1.0))])
    head, tail = np.array([0.0, 4.0]), np.zeros(2)
    cpu_only = DualWeights(np.array([1.0, 0.0]), np.zeros(2))
    classes = device_classes(problem)
    assert best_window(classes, head, tail, [cpu_only])[0] == 4.0
    # Alone in the window from 4 s on, b costs 1 s of the GPU or 9 of the CPU: 9/10 of both.
    bound = window_bound(classes, problem.graph, head, tail, [cpu_only])
    assert bound == pytest.approx(4.9)


def test_a_window_adds_what_must_come_before_and_after() -> None:
    # 3 s before any of the middle, 4 s of work on three devices, 2 s after each; no path has all.
    first = [Op("first0", 3.0), Op("first1", 3.0)]
    middle = [Op(f"op{index}", inputs=(f"first{index % 2}:0",)) for index in range(4)]
    last = [Op(f"last{n}", 2.0, (f"op{2 * n}:0", f"op{2 * n + 1}:0"), ()) for n in range(2)]
    problem = build_problem([*first, *middle, *last], Machine(3, bandwidth=np.inf))
    assert lower_bound_seconds(problem) == pytest.approx(3.0 + 4.0 / 3.0 + 2.0)
    assert optimum_seconds(problem) == 7.0

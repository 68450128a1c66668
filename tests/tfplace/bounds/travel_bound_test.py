"""The travel bound: valid on every small problem, and worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems
from tfplace.bounds.lower_bound import heads_and_tails, lower_bound_seconds
from tfplace.bounds.relaxation import device_classes
from tfplace.bounds.travel_bound import Fans, Ways, least_seconds, sharing_of, travel_bound


def _bound(problem: Problem, windows: bool = True) -> float:
    classes = device_classes(problem)
    if windows:
        head, tail, _ = heads_and_tails(problem, classes, [])
    else:
        head = tail = np.zeros(problem.num_ops)
    return travel_bound(classes, problem, sharing_of(problem), head, tail)


@settings(max_examples=60, deadline=None)
@given(small_problems(may_be_stuck=False))
def test_no_placement_beats_it(problem: Problem) -> None:
    optimum = optimum_seconds(problem) * (1.0 + 1e-9)
    assert _bound(problem, windows=False) <= optimum
    assert _bound(problem) <= optimum


def _shared_weight(num_users: int, size: int) -> Problem:
    """A weight of some bytes that some ops of a second each use, at one byte a second."""
    ops = [Op("weight", 0.0, (), (size,))]
    ops += [Op(f"use{index}", 1.0, ("weight:0",)) for index in range(num_users)]
    return build_problem(ops, Machine(2))


def test_a_weight_goes_where_its_work_is_spread() -> None:
    # In less than 12 seconds both devices would share the work, and the weight would travel.
    problem = _shared_weight(12, size=40)
    assert lower_bound_seconds(problem) == pytest.approx(12.0) == optimum_seconds(problem)
    assert _bound(_shared_weight(12, size=4)) == pytest.approx(6.0)
    assert _bound(_shared_weight(12, size=8)) == pytest.approx(8.0)


def test_gradients_come_back_from_where_they_were_made() -> None:
    ops = [Op(f"term{index}", 1.0, (), (40,)) for index in range(6)]
    ops.append(Op("sum", 0.0, [f"term{index}:0" for index in range(6)]))
    problem = build_problem(ops, Machine(2))
    assert lower_bound_seconds(problem) == pytest.approx(6.0) == optimum_seconds(problem)


def test_least_seconds_by_hand() -> None:
    fans = Fans(work=np.array([9.0]), outside=np.array([1.0]), hold=np.array([2.0]))
    # In 4 seconds: 9 / 3 = 3 devices, 2 transfers of 2 seconds on one of one channel.
    assert least_seconds(fans, Ways(3, 1, 1, is_single=False)) == pytest.approx(4.0)
    assert least_seconds(fans, Ways(9, 1, 2, is_single=False)) == pytest.approx(3.25)
    assert least_seconds(fans, Ways(3, 1, 2, is_single=False)) == pytest.approx(4.0)
    assert least_seconds(fans, Ways(9, 1, 9, is_single=True)) == pytest.approx(4.0)
    assert least_seconds(Fans(*np.zeros((3, 0))), Ways(9, 1, 1, is_single=True)) == 0.0


@pytest.mark.filterwarnings("error")
def test_seconds_as_long_as_a_problem_may_say() -> None:
    # 2e15 s of work cannot be done in the least that is above 0: more than any count of devices.
    fans = Fans(np.array([2e15]), np.array([2e15]), np.array([1.0]))
    assert least_seconds(fans, Ways(2, 1, 2, is_single=True)) > 2e15


def test_one_device_sends_nothing() -> None:
    assert (
        _bound(build_problem([Op("a", 1.0, (), (8,)), Op("b", 1.0, ("a:0",))], Machine(1))) == 0.0
    )

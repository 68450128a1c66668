"""Tests of what a chain's ops enclose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds, small_problems, some_schedules
from tfplace.bounds.enclosed_work import (
    EnclosedWork,
    enclosed_work,
    longest_chain,
    reversed_in_time,
)
from tfplace.bounds.load_bound import DualWeights
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.bounds.relaxation import device_classes, forward_edges

EVEN = DualWeights(np.array([0.5]), np.zeros(1))  # of one class of two devices


def _forks(num_forks: int, width: int) -> Problem:
    """fork0 of a second, `width` branches of a second, fork1 that waits for all of them, .."""
    ops = [Op("fork0")]
    for fork in range(num_forks):
        branches = [Op(f"branch{fork}_{index}", 1.0, (f"fork{fork}:0",)) for index in range(width)]
        inputs = tuple(f"{branch.name}:0" for branch in branches)
        ops += [*branches, Op(f"fork{fork + 1}", 1.0, inputs)]
    return build_problem(ops, Machine(2, bandwidth=np.inf))


def _enclosed(problem: Problem, *weights: DualWeights) -> EnclosedWork:
    return enclosed_work(device_classes(problem), forward_edges(problem), weights)


@settings(max_examples=80, deadline=None)
@given(small_problems(may_be_stuck=False))
def test_no_schedule_has_less_between_two_ops_of_the_chain(problem: Problem) -> None:
    classes = device_classes(problem)
    size, slots = len(classes.slots), classes.slots * classes.num_devices
    # Evenly over all devices, and all weight on each class alone.
    shares = np.concatenate([np.full((1, size), 1.0 / slots.sum()), np.diag(1.0 / slots)])
    weights = [DualWeights(share, np.zeros(size)) for share in shares]
    enclosed = _enclosed(problem, *weights)
    for schedule in some_schedules(problem):
        start, end = schedule.op_start[enclosed.chain], schedule.op_end[enclosed.chain]
        spare = start[None, :] - end[:, None] - enclosed.seconds
        later = np.triu(np.ones_like(spare, dtype=bool), 1)
        assert (spare[later] >= -1e-9 * (1.0 + schedule.makespan)).all()


def test_forks_one_after_another_each_take_their_work() -> None:
    # 1 + 4/2 + 1 + 4/2 + 1. Path alone: 5, all work on two devices: 5.5, the best window: 6.5.
    problem = _forks(2, width=4)
    assert lower_bound_seconds(problem) == pytest.approx(7.0)
    assert optimum_seconds(problem) == 7.0


def test_table_holds_what_lies_enclosed() -> None:
    enclosed = _enclosed(_forks(2, width=3), EVEN)
    assert enclosed.chain.tolist() == [0, 1, 4, 5, 8]  # forks, and the first branch of each
    expected = np.zeros((5, 5))
    expected[0, 2:] = [1.5, 2.0, 3.5]  # a fork's three branches, the fork in the middle, all
    expected[1, 3:] = [0.5, 2.0]  # not the other branches: they may run before branch 1 ends
    expected[2, 4] = 1.5
    np.testing.assert_allclose(np.triu(enclosed.seconds, 1), expected, atol=1e-12)


def test_an_op_lies_after_the_last_op_of_the_chain_that_it_waits_for() -> None:
    ops = [Op("first"), Op("second", 2.0, ("first:0",)), Op("aside", 1.0, ("first:0",))]
    ops += [Op("third", 2.0, ("second:0",)), Op("inner", 1.0, ("second:0", "aside:0"))]
    ops.append(Op("last", 1.0, ("third:0", "inner:0")))
    enclosed = _enclosed(build_problem(ops, Machine(2)), EVEN)
    assert enclosed.chain.tolist() == [0, 1, 3, 5]
    expected = np.zeros((4, 4))
    expected[0, 2:] = [1.0, 3.0]  # second; and third, aside, inner
    expected[1, 3] = 1.5  # third and inner, but not aside
    np.testing.assert_allclose(np.triu(enclosed.seconds, 1), expected, atol=1e-12)


def test_most_that_any_weights_show() -> None:
    ops = [Op("a"), Op("b", (4.0, 1.0), ("a:0",)), Op("c", 1.0, ("b:0",))]
    problem = build_problem(ops)
    cpu, gpu = (DualWeights(np.array(pair), np.zeros(2)) for pair in ([1.0, 0.0], [0.5, 0.5]))
    assert _enclosed(problem, cpu).seconds[0, 2] == 0.0
    assert _enclosed(problem, cpu, gpu).seconds[0, 2] == 0.5


def test_reversed_table_is_of_the_reversed_chain() -> None:
    forward = EnclosedWork(np.array([1, 4, 5]), np.arange(9.0).reshape(3, 3))
    backward = reversed_in_time(forward, 6)
    assert backward.chain.tolist() == [0, 1, 4]
    assert backward.seconds[0, 1] == forward.seconds[1, 2]
    assert backward.seconds[0, 2] == forward.seconds[0, 2]


def test_long_chain_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfplace.bounds.enclosed_work.MAX_CHAIN", 3)
    ops = [Op(f"op{n}", 1.0, (f"op{n - 1}:0",) if n else ()) for n in range(9)]
    problem = build_problem(ops)
    chain = longest_chain(forward_edges(problem), np.ones(9))
    assert chain.tolist() == [0, 4, 8]
    # What was left out of the chain lies between those that stayed.
    assert _enclosed(problem, EVEN).seconds[0, 1] == pytest.approx(1.5)

"""Tests of what a chain's ops enclose."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds
from tfplace.bounds.enclosed_work import Between, between, longest_chain, reversed_between
from tfplace.bounds.load_bound import Weights
from tfplace.bounds.lower_bound import LowerBound, lower_bound
from tfplace.bounds.relaxation import device_classes, forward_edges

EVEN = Weights(np.array([0.5]), np.zeros(1))  # of one class of two devices


def _forks(num_forks: int, width: int) -> Problem:
    """fork0 of a second, `width` branches of a second, fork1 that waits for all of them, .."""
    ops = [Op("fork0")]
    for fork in range(num_forks):
        branches = [Op(f"branch{fork}_{index}", 1.0, (f"fork{fork}:0",)) for index in range(width)]
        inputs = tuple(f"{branch.name}:0" for branch in branches)
        ops += [*branches, Op(f"fork{fork + 1}", 1.0, inputs)]
    return build_problem(ops, Machine(2, bandwidth=np.inf))


def _between(problem: Problem, *weights: Weights) -> Between:
    return between(device_classes(problem), forward_edges(problem), weights)


def test_forks_one_after_another_each_take_their_work() -> None:
    # 1 + 4/2 + 1 + 4/2 + 1. Path alone: 5, all work on two devices: 5.5, the best window: 6.5.
    problem = _forks(2, width=4)
    assert lower_bound(problem) == LowerBound(pytest.approx(7.0), "path")
    assert optimum_seconds(problem) == 7.0


def test_table_holds_what_lies_between() -> None:
    found = _between(_forks(2, width=3), EVEN)
    assert found.chain.tolist() == [0, 1, 4, 5, 8]  # forks, and the first branch of each
    expected = np.zeros((5, 5))
    expected[0, 2:] = [1.5, 2.0, 3.5]  # a fork's three branches, the fork in the middle, all
    expected[1, 3:] = [0.5, 2.0]  # not the other branches: they may run before branch 1 ends
    expected[2, 4] = 1.5
    np.testing.assert_allclose(np.triu(found.seconds, 1), expected, atol=1e-12)


def test_most_that_any_weights_show() -> None:
    ops = [Op("a"), Op("b", (4.0, 1.0), ("a:0",)), Op("c", 1.0, ("b:0",))]
    problem = build_problem(ops)
    cpu, gpu = (Weights(np.array(pair), np.zeros(2)) for pair in ([1.0, 0.0], [0.5, 0.5]))
    assert _between(problem, cpu).seconds[0, 2] == 0.0
    assert _between(problem, cpu, gpu).seconds[0, 2] == 0.5


def test_reversed_table_is_of_the_reversed_chain() -> None:
    forward = Between(np.array([1, 4, 5]), np.arange(9.0).reshape(3, 3))
    backward = reversed_between(forward, 6)
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
    assert _between(problem, EVEN).seconds[0, 1] == pytest.approx(1.5)

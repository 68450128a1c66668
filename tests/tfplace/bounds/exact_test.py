"""Tests of branch and bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, chain, fan_out, two_towers
from tests.tfplace.bounds.brute_force import constrained_problem, optimum_seconds
from tfplace.bounds.exact import is_small, num_free_units, optimum
from tfplace.simulation.evaluator import SimulatingEvaluator

SECONDS = 60.0


@pytest.mark.parametrize("seed", range(60))
def test_optimum_is_brute_forces(seed: int) -> None:
    problem = constrained_problem(np.random.default_rng(1000 + seed), max_ops=7)
    found = optimum(problem, SECONDS)
    assert found.is_proven
    assert found.step_seconds == pytest.approx(optimum_seconds(problem), rel=1e-12)
    assert found.lower_bound_seconds == found.step_seconds
    if found.device_of_op is not None:
        outcome = SimulatingEvaluator(problem, 1).evaluate(found.device_of_op[None])[0]
        assert outcome.step_seconds == found.step_seconds


def test_two_towers_of_ten_take_a_device_each() -> None:
    found = optimum(two_towers(height=10, machine=Machine(3, bandwidth=2.0)), SECONDS)
    assert found.is_proven
    assert found.step_seconds == 11.5  # ten levels, half a second of transfer, the join


def test_alike_devices_are_tried_once() -> None:
    problem = chain(6, machine=Machine(5, types=["GPU"] * 5))
    found = optimum(problem, SECONDS)
    assert (found.step_seconds, found.is_proven) == (6.0, True)
    assert found.num_nodes < 100


def test_order_of_transfers_between_alike_devices_counts() -> None:
    # One tensor goes to two devices, one after the other; the longer user should get it first.
    ops = [
        Op("source", outputs=(1,)),
        Op("short", 1.0, ("source:0",), persistent=6),
        Op("long", 5.0, ("source:0",), persistent=6),
    ]
    problem = build_problem(ops, Machine(3, memory=10, types=["GPU"] * 3))
    pinned = dataclasses.replace(problem, pinned_device=np.array([0, -1, -1], dtype=np.int32))
    big = dataclasses.replace(pinned.graph, op_persistent_bytes=np.array([6, 6, 6], dtype=np.int64))
    found = optimum(dataclasses.replace(pinned, graph=big), SECONDS)
    assert found.step_seconds == 7.0
    assert found.device_of_op is not None
    assert found.device_of_op.tolist() == [0, 2, 1]


def test_start_is_kept_where_it_is_the_best() -> None:
    problem = fan_out(4, machine=Machine(2, bandwidth=np.inf))
    best = optimum(problem, SECONDS)
    again = optimum(problem, SECONDS, best.device_of_op)
    assert again.step_seconds == best.step_seconds
    assert again.num_nodes <= best.num_nodes


def test_without_time_nothing_is_proven() -> None:
    found = optimum(two_towers(machine=Machine(3)), 0.0)
    assert not found.is_proven
    assert found.lower_bound_seconds <= 6.0


def test_nothing_fits() -> None:
    ops = [Op(f"op{index}", persistent=6) for index in range(3)]
    found = optimum(build_problem(ops, Machine(2, memory=10)), SECONDS)
    assert (found.is_proven, found.device_of_op) == (True, None)
    assert found.lower_bound_seconds == float("inf")


def test_small_means_few_units_with_a_choice() -> None:
    problem = chain(41)
    assert not is_small(problem)
    pinned = np.full(41, -1, dtype=np.int32)
    pinned[0] = 1
    problem = dataclasses.replace(problem, pinned_device=pinned)
    assert num_free_units(problem) == 40
    assert is_small(problem)

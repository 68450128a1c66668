"""Tests of the lower bound."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem, chain, diamond, unrolled_lstm
from tests.tfplace.bounds.brute_force import constrained_problem, optimum_seconds
from tfplace.bounds.lower_bound import LowerBound, lower_bound
from tfplace.simulation.simulator import Simulator


def _assert_bound(problem: Problem, seconds: float, argument: str) -> None:
    found = lower_bound(problem)
    assert found == LowerBound(pytest.approx(seconds), argument)
    assert found.seconds <= seconds


@pytest.mark.parametrize("seed", range(100))
def test_bound_is_below_every_placement(seed: int) -> None:
    problem = constrained_problem(np.random.default_rng(seed))
    assert lower_bound(problem).seconds <= optimum_seconds(problem)


def test_chain_takes_its_length_on_one_device() -> None:
    _assert_bound(chain(3), 3.0, "path")


def test_free_links_leave_the_critical_path() -> None:
    machine = Machine(2, bandwidth=np.inf)
    _assert_bound(diamond(machine=machine), 3.0, "path")


def test_dear_links_make_branches_queue() -> None:
    # Two branches of a second each on one device, or ten seconds for a branch's result.
    machine = Machine(2, bandwidth=0.1)
    _assert_bound(diamond(size=1, machine=machine), 4.0, "path")
    assert optimum_seconds(diamond(size=1, machine=machine)) == 4.0


def test_branches_queue_until_a_transfer_is_cheaper() -> None:
    # Three seconds of work under the join, or a result that takes half a second.
    machine = Machine(2, latency=0.5, bandwidth=np.inf)
    _assert_bound(diamond(machine=machine), 3.5, "path")


def test_work_is_spread_by_what_each_device_is_good_at() -> None:
    # Four seconds on the GPU or eight on the CPU: 8/3 on both, not 4/2.
    ops = [Op(f"op{index}", seconds=(2.0, 1.0)) for index in range(4)]
    _assert_bound(build_problem(ops), 8.0 / 3.0, "work")


def test_colocated_ops_are_one_item() -> None:
    # Apart: the first is quick on device 0 and the second on device 1. Together: 11 on either.
    ops = [Op("a", (1.0, 10.0), colocation=0), Op("b", (10.0, 1.0), colocation=0)]
    _assert_bound(build_problem(ops), 11.0 / 2.0, "work")


def test_memory_forces_work_to_where_it_is_slow() -> None:
    # The GPU holds one of four; the CPU takes 5 s for each of the others.
    ops = [Op(f"op{index}", (5.0, 0.1), persistent=10) for index in range(4)]
    machine = Machine(2, memory=(100, 10))
    _assert_bound(build_problem(ops, machine), 15.0, "work")


def test_window_adds_what_must_come_before_and_after() -> None:
    # 3 s before any of the middle, 4 s of work on three devices, 2 s after each; no path has all.
    first = [Op("first0", 3.0), Op("first1", 3.0)]
    middle = [Op(f"op{index}", inputs=(f"first{index % 2}:0",)) for index in range(4)]
    last = [Op(f"last{n}", 2.0, (f"op{2 * n}:0", f"op{2 * n + 1}:0"), ()) for n in range(2)]
    machine = Machine(3, bandwidth=np.inf)
    problem = build_problem([*first, *middle, *last], machine)
    _assert_bound(problem, 3.0 + 4.0 / 3.0 + 2.0, "window")
    assert optimum_seconds(problem) == 7.0


def test_slots_share_a_devices_work() -> None:
    ops = [Op(f"op{index}") for index in range(6)]
    _assert_bound(build_problem(ops, Machine(1, slots=3)), 2.0, "work")


@pytest.mark.parametrize(("size", "seconds"), [(2, 13.0), (3, 14.0), (5, 16.0)])
def test_long_sum_pays_in_compute_or_in_transfers(size: int, seconds: float) -> None:
    # A running sum of ten terms: 1 s a term, 1 s an addition, `size` s to move a term or the sum.
    # All on one device: 20 s. The critical path alone: 11 s.
    ops = []
    for index in range(10):
        ops.append(Op(f"term{index}", outputs=(size,)))
        inputs = (f"term{index}:0",) if not index else (f"sum{index - 1}:0", f"term{index}:0")
        ops.append(Op(f"sum{index}", inputs=inputs, outputs=(size,)))
    _assert_bound(build_problem(ops, Machine(9, bandwidth=1.0)), seconds, "path")


@pytest.mark.parametrize("rule", ["duplex", "sender", "half_duplex", "pairwise"])
def test_bound_holds_for_long_sums_under_every_channel_rule(rule: str) -> None:
    rng = np.random.default_rng(5)
    ops = []
    for index in range(8):
        ops.append(Op(f"term{index}", float(rng.uniform(0.5, 1.5)), outputs=(2,)))
        inputs = (f"term{index}:0",) if not index else (f"sum{index - 1}:0", f"term{index}:0")
        ops.append(Op(f"sum{index}", inputs=inputs, outputs=(3,)))
    problem = build_problem(ops, Machine(3, bandwidth=2.0, communication=rule))
    bound = lower_bound(problem).seconds
    placements = rng.integers(0, 3, (3000, len(ops))).astype(np.int32)
    assert bound <= Simulator(problem, num_threads=1).run_many(placements)[0].min()


def test_bound_is_below_what_is_found_on_a_recurrent_step() -> None:
    problem = unrolled_lstm(machine=Machine(3, latency=3e-5, bandwidth=1e10))
    one = np.zeros(problem.num_ops, dtype=np.int32)
    assert lower_bound(problem).seconds < Simulator(problem).run(one)[0]


def test_too_little_memory_is_infeasible() -> None:
    ops = [Op("a", persistent=6), Op("b", persistent=6), Op("c", persistent=6)]
    assert lower_bound(build_problem(ops, Machine(2, memory=10))).seconds == pytest.approx(1.5)
    found = lower_bound(build_problem(ops, Machine(2, memory=8)))
    assert found == LowerBound(float("inf"), "infeasible")


def test_no_kernel_anywhere_is_infeasible() -> None:
    found = lower_bound(build_problem([Op("a", (np.inf, np.inf))]))
    assert found == LowerBound(float("inf"), "infeasible")


def test_empty_graph() -> None:
    assert lower_bound(build_problem([])) == LowerBound(0.0, "path")


def test_an_input_that_is_on_the_path_as_well_counts_once() -> None:
    # a, b, c one after another on the CPU; c takes a's output too. Moving it would take a while.
    ops = [
        Op("a", 1.0, outputs=(1,)),
        Op("b", 1.0, ("a:0",), (0,)),
        Op("c", 1.0, ("a:0", "b:0")),
    ]
    _assert_bound(build_problem(ops, Machine(2, bandwidth=1.0)), 3.0, "path")

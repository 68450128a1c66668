"""--max_devices, and the best step for 1, 2, 4, ... devices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphs.errors import ConstraintError
from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.device_counts import (
    NONE,
    by_devices,
    carried_over,
    device_counts,
    on_fewer_devices,
    reserved,
)
from tfplace.choosing.memory_limit import chosen_devices, limited_to, num_counted
from tfplace.search.search import Limits
from tfplace.simulation.evaluator import SimulatingEvaluator

FOUR_GPUS = Machine(5, bandwidth=1e9)


def _towers(num_towers=4, machine=FOUR_GPUS, **of_all):
    """As many towers of one op, a second each."""
    return build_problem([Op(f"tower{i}", **of_all) for i in range(num_towers)], machine)


def _candidate(problem, *device_of_op):
    placement = np.array(device_of_op, np.int32)
    return Candidate("found", placement, SimulatingEvaluator(problem).evaluate(placement[None])[0])


@pytest.mark.parametrize(
    ("types", "counts"),
    [
        (["CPU"] + ["GPU"] * 4, [1, 2, 4]),
        (["CPU"] * 3, [1, 2, 3]),
        (["CPU", "GPU"], []),
        (["CPU"], []),
    ],
)
def test_which_numbers_are_asked_about(types, counts):
    assert device_counts(_towers(machine=Machine(len(types), types=types))) == counts


def test_each_number_gets_its_best_step():
    problem = _towers()
    best = _candidate(problem, 1, 2, 3, 4)
    fewer = on_fewer_devices(problem, [best], Limits(10.0, 400), seed=0)
    rows = by_devices(problem, [best, *fewer])
    assert [(row.max_devices, row.num_devices, row.step_seconds) for row in rows] == [
        (1, 1, 2.0),  # the CPU beside a GPU is not counted, and takes half
        (2, 1, 2.0),
        (4, 4, 1.0),
    ]


def test_without_annealing_the_devices_are_merged_evenly():
    problem = _towers()
    best = _candidate(problem, 1, 2, 3, 4)
    one, two = on_fewer_devices(problem, [best], NONE, seed=0)
    assert np.bincount(one.device_of_op).tolist() == [0, 4]
    assert sorted(np.bincount(two.device_of_op).tolist()) == [0, 2, 2]


def test_a_number_that_lacks_memory_says_so():
    problem = _towers(machine=Machine(3, memory=[1, 30, 30]), persistent=10)
    best = _candidate(problem, 1, 1, 2, 2)
    one, two = by_devices(problem, [best, *on_fewer_devices(problem, [best], NONE, 0)])
    assert one.step_seconds is None and "needs 40 bytes" in one.reason
    assert two.step_seconds == 2.0


def test_the_same_seed_and_trials_give_the_same():
    problem = _towers(7)
    best = _candidate(problem, 1, 2, 3, 4, 1, 2, 3)
    found = [on_fewer_devices(problem, [best], Limits(60.0, 300), seed=5) for _ in range(2)]
    for first, second in zip(*found, strict=True):
        assert first.device_of_op.tolist() == second.device_of_op.tolist()


def test_few_trials_or_seconds_are_all_left_to_the_search():
    problem = _towers()
    assert reserved(problem, 10.0, 400) == NONE
    assert reserved(problem, 1e-4, None) == NONE
    assert reserved(problem, math.inf, 10_000).max_trials == 500
    assert reserved(problem, 20.0, None) == Limits(1.0, None)


def test_the_chosen_devices_are_those_that_are_needed_then_the_fastest():
    seconds = [9.0, 2.0, 1.0, 2.0]
    ops = [Op("a", seconds), Op("b", seconds, pin=3)]
    problem = build_problem(ops, Machine(4))
    assert chosen_devices(problem, 1) == [3]
    assert chosen_devices(problem, 2) == [2, 3]
    assert chosen_devices(build_problem(ops[:1], Machine(4)), 1) == [2]


def test_of_equal_devices_those_that_are_linked_best_are_chosen():
    near, far = 0.001, 1.0
    latency = np.full((4, 4), far)
    latency[0, 2] = latency[2, 0] = near
    machine = Machine(4, latency=latency.tolist(), types=["CPU"] * 4)
    assert chosen_devices(_towers(machine=machine), 2) == [0, 2]


def test_pins_that_need_more_devices_contradict_the_limit():
    problem = build_problem([Op("a", pin=1), Op("b", pin=2)], Machine(3))
    with pytest.raises(ConstraintError, match=r"at most 1 device: pins and kernels need /device"):
        chosen_devices(problem, 1)


def test_nothing_can_lie_on_a_device_that_was_not_chosen():
    limited = limited_to(_towers(), [1, 2])
    assert limited.allowed().any(axis=0).tolist() == [True, True, True, False, False]
    assert working_devices(limited).tolist() == [1, 2]
    assert num_counted(limited, np.array([0, 1, 1, 1])) == 1
    placement = carried_over(limited, np.array([1, 2, 3, 4], np.int32))
    assert sorted(placement.tolist()) == [1, 1, 2, 2]


def test_devices_that_do_about_as_much_join_others_in_order():
    """Two of a host stay together, though the second one has a little more to do."""
    seconds = [1.0, 1.01, 1.0, 1.01, 1.0, 1.01, 1.0, 1.02]
    ops = [Op(f"shard{number}", each) for number, each in enumerate(seconds)]
    problem = build_problem(ops, Machine(8, types=["GPU"] * 8))
    limited = limited_to(problem, [0, 1, 2, 3])
    placement = carried_over(limited, np.arange(8, dtype=np.int32))
    assert placement.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]

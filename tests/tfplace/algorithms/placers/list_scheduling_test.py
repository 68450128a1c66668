"""Rules of list scheduling on graphs small enough to schedule by hand."""

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, chain
from tfplace.algorithms.placers.earliest_start import earliest_task_first, favourite_children
from tfplace.algorithms.placers.heft import heft, upward_rank
from tfplace.simulation.arrays import simulation_arrays
from tfplace.simulation.simulator import Simulator

GPUS = Machine(2, types=("GPU", "GPU"), latency=0.5, bandwidth=1.0)


def _etf(problem, favourite):
    favourite = np.array(favourite, dtype=np.int32)
    return earliest_task_first(Simulator(problem, num_threads=1), favourite).tolist()


def test_earliest_task_first_follows_the_data():
    # c could start on 0 at 1 s, where a's tensor is, or on 1 at 1 + 4 + 0.5 s.
    ops = [Op("a", 1.0, outputs=(4,)), Op("b", 3.0), Op("c", 1.0, ("a:0",))]
    assert _etf(build_problem(ops, GPUS), [-1, -1, -1]) == [0, 1, 0]


def test_a_device_waits_for_a_favourite_child():
    # a ends on 0 at 0.8 s, b on 1 at 0.5 s, then `long` keeps 1 busy until 2 s.
    ops = [
        Op("a", 0.8, outputs=(9,)),
        Op("b", 0.5, outputs=(0,)),
        Op("long", 1.5, ("b:0",), outputs=(0,)),
        Op("other", 5.0, ("b:0",), outputs=()),
        Op("f", 1.0, ("a:0", "long:0"), outputs=()),
    ]
    problem = build_problem(ops, GPUS)
    # `other` can start on 0 at 1 s: device 0 doesn't know that f will want it.
    assert _etf(problem, [-1, -1, -1, -1, -1])[3] == 0
    # f, which would have to wait for 9 bytes elsewhere, has device 0 kept for it; `other` is not
    # urgent at 0.8 s, since its input is under way.
    assert _etf(problem, [4, -1, -1, -1, -1]) == [0, 1, 1, 1, 0]


def test_favourite_children_are_the_dear_edges():
    # a has two children and wants the dear one; c has two parents and wants the dear one.
    ops = [
        Op("a", 1.0, outputs=(8, 1)),
        Op("dear", 1.0, ("a:0",), outputs=(8,)),
        Op("cheap", 1.0, ("a:1",), outputs=(1,)),
        Op("c", 1.0, ("dear:0", "cheap:0"), outputs=()),
    ]
    problem = build_problem(ops, GPUS)
    assert favourite_children(problem).tolist() == [1, 3, -1, -1]


def test_favourite_children_of_windows_stay_inside_them():
    problem = chain(6, size=3, machine=GPUS)
    assert favourite_children(problem).tolist() == [1, 2, 3, 4, 5, -1]
    assert favourite_children(problem, window_ops=3).tolist() == [1, 2, -1, 4, 5, -1]


def test_upward_rank_is_the_longest_path():
    problem = chain(3, size=2, machine=GPUS)
    rank = upward_rank(
        simulation_arrays(problem), np.array([1.0, 2.0, 4.0]), np.array([5.0, 7.0, 9.0])
    )
    assert rank.tolist() == [19.0, 13.0, 4.0]


def test_heft_uses_the_faster_device_and_fills_gaps():
    # big runs on the fast device from 0 to 4; tail waits on it for slow's tensor; tiny, last by
    # rank, fits into that gap.
    ops = [
        Op("big", (8.0, 4.0), outputs=(0,)),
        Op("slow", (6.0, 20.0), outputs=(0,)),
        Op("tail", (9.0, 1.0), ("big:0", "slow:0"), outputs=()),
        Op("tiny", (5.0, 1.0), outputs=()),
    ]
    machine = Machine(2, types=("GPU", "GPU"), latency=0.5)
    problem = build_problem(ops, machine)
    placement = heft(problem)[0]
    assert placement.tolist() == [1, 0, 1, 1]
    assert Simulator(problem).run(placement)[0] == pytest.approx(7.5)

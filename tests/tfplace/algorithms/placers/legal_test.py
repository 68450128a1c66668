"""Tests of tfplace.algorithms.placers.legal."""

import numpy as np

from tests.builders import Machine, Op, build_problem, two_towers
from tfplace.algorithms.placers.legal import (
    completed,
    distinct,
    fallback_order,
    legal,
    working_devices,
)


def test_working_devices_are_the_accelerators_or_all():
    assert working_devices(two_towers(machine=Machine(3))).tolist() == [1, 2]
    assert working_devices(two_towers(machine=Machine(2, types=("CPU", "CPU")))).tolist() == [0, 1]


def test_falling_back_prefers_the_cpu():
    assert fallback_order(two_towers(machine=Machine(3))).tolist() == [
        [0, 1, 2],
        [1, 0, 2],
        [2, 0, 1],
    ]


def test_a_group_goes_where_most_of_its_seconds_are_wanted():
    ops = [
        Op("a", 1.0, colocation=0),
        Op("b", 3.0, colocation=0),
        Op("c", 1.0, colocation=0),
        Op("d", (1.0, np.inf, np.inf)),
    ]
    problem = build_problem(ops, Machine(3))
    assert legal(problem, np.array([1, 2, 1, 2])).tolist() == [2, 2, 2, 0]


def test_distinct_placements_keep_their_order():
    placements = [np.array(each) for each in ([1, 0], [0, 1], [1, 0], [0, 0])]
    assert distinct(placements).tolist() == [[1, 0], [0, 1], [0, 0]]


def test_what_is_wanted_nowhere_goes_where_its_neighbours_are():
    ops = [Op("a", 1.0), Op("b", 1.0, ("a:0",)), Op("c", 1.0, ("b:0",)), Op("d", 1.0)]
    problem = build_problem(ops, Machine(3))
    wanted = np.array([-1, 2, -1, -1], np.int32)
    assert completed(problem, wanted).tolist() == [1, 2, 2, 1]
    assert completed(problem, wanted, to_users=True).tolist() == [2, 2, 2, 1]

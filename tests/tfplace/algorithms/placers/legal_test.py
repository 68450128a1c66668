import numpy as np

from tests.builders import Machine, Op, build_problem, two_towers
from tfplace.algorithms.placers.legal import fallback_order, legal, working_devices
from tfplace.algorithms.placers.memory import op_bytes_estimate, repaired
from tfplace.simulation.simulator import Simulator


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


def test_the_estimate_is_right_for_one_device():
    problem = two_towers(4, size=10, machine=Machine(2))
    simulator = Simulator(problem)
    _, peaks = simulator.run(np.ones(problem.num_ops))
    assert op_bytes_estimate(simulator).sum() == peaks[1]


def test_repair_moves_the_largest_that_ends_the_excess():
    ops = [Op(f"op{size}", outputs=(), persistent=size) for size in (50, 20, 40)]
    problem = build_problem(ops, Machine(2, memory=(100, 80)))
    simulator = Simulator(problem)
    assert repaired(simulator, np.array([1, 1, 1])).tolist() == [0, 1, 1]
    assert repaired(simulator, np.array([0, 1, 1])).tolist() == [0, 1, 1]


def test_a_hopeless_repair_comes_back_with_the_least_excess():
    problem = build_problem([Op("a", persistent=50), Op("b", persistent=60)], Machine(2, memory=55))
    placement = repaired(Simulator(problem), np.array([0, 0]))
    assert sorted(placement.tolist()) == [0, 1]

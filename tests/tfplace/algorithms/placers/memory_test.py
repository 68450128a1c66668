"""Tests of tfplace.algorithms.placers.memory."""

import numpy as np

from graphs.problem import Infeasible
from tests.builders import Machine, Op, build_problem, two_towers
from tfplace.algorithms.placers import memory
from tfplace.algorithms.placers.memory import made_to_fit, op_bytes_estimate, repaired
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator


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


def test_what_is_held_when_the_device_is_fullest_is_moved():
    # early holds 60 only until its user has ended; late's 50 lie beside variable's 40 then.
    ops = [
        Op("variable", outputs=(), persistent=40),
        Op("early", outputs=(60,)),
        Op("user", inputs=("early:0",), outputs=(0,)),
        Op("late", inputs=("user:0",), outputs=(70,)),
        Op("end", inputs=("late:0",), outputs=()),
    ]
    problem = build_problem(ops, Machine(2, memory=(105, 1000), bandwidth=100.0))
    placement = repaired(Simulator(problem), np.zeros(5, dtype=np.int32))
    outcome = SimulatingEvaluator(problem, 1).evaluate(placement[None])[0]
    assert not isinstance(outcome, Infeasible), outcome
    assert placement[1] == 0  # early fits


def test_what_is_wanted_is_made_legal_before_it_is_repaired():
    ops = [Op("a", (1.0, np.inf), outputs=(), persistent=9), Op("b", outputs=(), persistent=9)]
    problem = build_problem(ops, Machine(2, memory=10))
    assert made_to_fit(Simulator(problem), np.array([1, 0])).tolist() == [0, 1]


def test_of_many_devices_those_with_the_most_room_are_targets():
    allowed = np.array([True] * 9 + [False])
    room = np.array([5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 99.0])
    assert memory._targets(allowed, room) == [0, 2, 4, 6, 7, 8]
    assert memory._targets(allowed[:3], room[:3]) == [0, 1, 2]

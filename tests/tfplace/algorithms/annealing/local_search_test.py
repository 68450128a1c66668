"""Tests of tfplace.algorithms.annealing.local_search."""

import dataclasses
import itertools

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement
from tests.builders import Machine, Op, build_problem, random_graph, two_towers, unrolled_lstm
from tests.fakes import WantedDevices
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.annealing.config import LocalSearchConfig
from tfplace.algorithms.annealing.local_search import LocalSearch
from tfplace.algorithms.table import one_shot_starts
from tfplace.search.instance import Instance
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator

MACHINE = Machine(3, latency=1e-5, bandwidth=1e10)


def _policy(problem, seed=0, **config):
    instance = Instance(problem, np.zeros(problem.num_ops, dtype=np.int32))
    starts = one_shot_starts(instance, seed)
    return LocalSearch(problem, seed, starts, LocalSearchConfig(**config))


def _from(problem, start, **config):
    start = np.array(start, dtype=np.int32)
    return LocalSearch(problem, 0, [lambda: start[None]], LocalSearchConfig(**config))


def _seconds(problem, policy, num_trials):
    """Feasible step seconds in the order of trials."""
    outcomes, _ = search(policy, SimulatingEvaluator(problem), num_trials)
    return [each.step_seconds for each in outcomes if isinstance(each, Measurement)]


def test_finds_the_optimum_of_a_small_graph():
    problem = random_graph()
    everything = np.array(list(itertools.product((1, 2), repeat=12)), dtype=np.int32)
    optimum = Simulator(problem).run_many(everything)[0].min()
    assert min(_seconds(problem, _policy(problem), 3000)) == pytest.approx(optimum)


def test_asks_nobody_but_the_evaluator():
    # By the simulator all ops on one device are best; the evaluator wants something else.
    problem = two_towers(4, size=10**6, machine=Machine(3))
    wanted = np.arange(problem.num_ops) % 3
    outcomes, _ = search(_from(problem, [1] * problem.num_ops), WantedDevices(wanted), 2500)
    assert min(each.step_seconds for each in outcomes) == 1.0


def test_same_seed_same_trials():
    problem = unrolled_lstm(2, 3, MACHINE)
    first, second = (_seconds(problem, _policy(problem, 5), 150) for _ in range(2))
    assert first == second
    assert first != _seconds(problem, _policy(problem, 6), 150)


def test_begins_with_the_starts_and_goes_on_from_the_best():
    problem = two_towers(machine=Machine(3))
    starts = [np.full((1, problem.num_ops), device, dtype=np.int32) for device in (0, 2, 1)]
    policy = LocalSearch(problem, 0, [lambda each=each: each for each in starts])
    for start, seconds in zip(starts, (3.0, 1.0, 2.0), strict=True):
        proposal = policy.propose()
        np.testing.assert_array_equal(proposal.device_of_op, start)
        policy.learn(proposal, [Measurement(seconds, (), "measured")])
    neighbours = policy.propose().device_of_op
    assert len(neighbours) == 2
    assert (neighbours == 2).any(axis=1).all() and (neighbours != 2).any(axis=1).all()


def test_moves_keep_constraints():
    ops = [
        Op("a", (1.0, np.inf, np.inf), outputs=(1,)),
        Op("b", 1.0, ("a:0",), (1,), colocation=0),
        Op("c", 1.0, ("b:0",), (1,)),
        Op("d", 1.0, ("c:0",), (1,), pin=2),
        Op("e", 1.0, ("d:0",), (1,), colocation=0),
    ]
    problem = build_problem(ops, Machine(3))
    policy = _from(problem, [0, 1, 1, 2, 1])
    outcomes, placements = search(policy, SimulatingEvaluator(problem), 300)
    assert all(isinstance(each, Measurement) for each in outcomes)
    assert len(np.unique(placements, axis=0)) > 5


def test_ends_after_the_starts_where_nothing_can_be_moved():
    problem = build_problem([Op("a", (1.0, np.inf))], Machine(2))
    assert _seconds(problem, _policy(problem), 1000) == [1.0] * 6


def test_failures_are_never_taken():
    problem = two_towers(machine=Machine(3))
    policy = _from(problem, [1] * problem.num_ops)
    crash, good = Infeasible("crash", "the worker died"), Measurement(1.0, (), "measured")
    policy.learn(policy.propose(), [good])
    for _ in range(20):
        proposal = policy.propose()
        # Each is one move away from the start.
        assert (proposal.device_of_op == 1).any()
        scalars = policy.learn(proposal, [crash] * len(proposal.device_of_op))
    assert scalars["best_energy"] == 1.0
    assert scalars["acceptance"] < 0.4


def test_leaves_placements_that_lack_memory():
    problem = unrolled_lstm(2, 4, MACHINE)
    _, peaks = Simulator(problem).run(np.ones(problem.num_ops))
    memory = np.full(3, int(peaks[1] * 0.7))
    problem = dataclasses.replace(problem, device_memory_bytes=memory)
    assert len(_seconds(problem, _from(problem, [1] * problem.num_ops), 300)) > 50


def test_the_fewer_are_taken_the_more_are_proposed_at_once():
    problem = unrolled_lstm(2, 4, MACHINE)
    # Cold, and one pass: what is worse is never taken.
    options = {"max_batch": 9, "hot": 1e-6, "cold": 1e-6, "first_pass_trials": 10**6}
    policy = _from(problem, [1] * problem.num_ops, **options)
    policy.learn(policy.propose(), [Measurement(1.0, (), "measured")])
    sizes = []
    for _ in range(100):
        proposal = policy.propose()
        sizes.append(len(proposal.device_of_op))
        policy.learn(proposal, [Measurement(9.0, (), "measured")] * sizes[-1])
    assert sizes == sorted(sizes) and sizes[0] == 2 and sizes[-1] == 9


def test_passes_double_and_cool_down():
    problem = unrolled_lstm(2, 4, MACHINE)
    policy = _from(problem, [1] * problem.num_ops, first_pass_trials=40)
    policy.learn(policy.propose(), [Measurement(1.0, (), "measured")])
    trials, passes, temperatures = 0, [], []
    while trials < 280:  # 40 + 80 + 160
        proposal = policy.propose()
        passes.append((policy._num_passes, trials))
        worse = [Measurement(1.1, (), "measured")] * len(proposal.device_of_op)
        temperatures.append((policy._num_passes, policy.learn(proposal, worse)["temperature"]))
        trials += len(worse)
    begins = [next(trial for number, trial in passes if number == each) for each in (1, 2, 3)]
    assert begins == [0, 40, 120]
    for each in (1, 2, 3):
        of_pass = [temperature for number, temperature in temperatures if number == each]
        assert of_pass == sorted(of_pass, reverse=True)
        assert of_pass[0] > 0.5 * 0.002 * 2 ** (each - 1) > of_pass[-1]
        assert of_pass[-1] == pytest.approx(0.0002)

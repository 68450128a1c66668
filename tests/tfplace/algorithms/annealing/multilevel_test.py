import itertools

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, two_towers, unrolled_lstm
from tfplace.algorithms.annealing.multilevel import Multilevel, MultilevelConfig
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Burst
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator

MACHINE = Machine(3, latency=1e-5, bandwidth=1e10)


def _found(problem, max_trials, seed=0, **config):
    stage = Stage(
        "annealing", lambda best: Multilevel(problem, seed, (), None, MultilevelConfig(**config))
    )
    return search([stage], SimulatingEvaluator(problem, 1), Limits(np.inf, max_trials))


def _random_graph(num_ops=12):
    """Ops on 2 GPUs, and a CPU that is too slow to help."""
    rng = np.random.default_rng(7)
    ops = []
    for index in range(num_ops):
        count = min(index, int(rng.integers(0, 3)))
        inputs = tuple(f"op{i}:0" for i in rng.choice(index, count, replace=False)) if count else ()
        seconds = float(rng.integers(1, 6))
        ops.append(
            Op(f"op{index}", (50 * seconds, seconds, seconds), inputs, (int(rng.integers(1, 4)),))
        )
    return build_problem(ops, Machine(3, latency=0.1, bandwidth=2.0))


def test_finds_the_optimum_of_a_small_graph():
    problem = _random_graph()
    everything = np.array(list(itertools.product((1, 2), repeat=12)), dtype=np.int32)
    optimum = Simulator(problem).run_many(everything)[0].min()
    result = _found(problem, 3000)
    assert result.best.outcome.step_seconds == optimum
    assert result.num_trials == 3000


def test_same_seed_same_result_whatever_the_clock_says():
    problem = _random_graph(60)
    runs = [_found(problem, 700, seed, level_sizes=(4,)) for seed in (5, 5, 6)]
    histories = [[(trial, step) for trial, _, step in run.history] for run in runs]
    assert histories[0] == histories[1] != histories[2]
    assert np.array_equal(runs[0].best.placement.device_of_op, runs[1].best.placement.device_of_op)


def test_what_a_chain_reports_is_what_the_simulator_says():
    problem = unrolled_lstm(2, 4, MACHINE)
    policy = Multilevel(problem, seed=1)
    evaluator = SimulatingEvaluator(problem, 1)
    num_bursts = 0
    while num_bursts < 20:
        policy.allow(np.inf, 2000 - 101 * num_bursts)
        proposal = policy.propose()
        outcomes = evaluator.evaluate(proposal.device_of_op)
        scalars = policy.learn(proposal, outcomes)
        num_bursts += isinstance(proposal, Burst)
        if len(outcomes) and isinstance(proposal, Burst):
            assert scalars["best_energy"] == outcomes[0].step_seconds


def test_constraints_are_kept():
    ops = [
        Op("a", 1.0, colocation=0),
        Op("b", 1.0, ("a:0",), pin=1),
        Op("c", (1.0, np.inf, 1.0), ("a:0",)),
        *(Op(f"d{i}", 1.0, ("c:0",)) for i in range(4)),
        Op("e", 1.0, ("d0:0", "d1:0", "d2:0", "d3:0", "b:0"), colocation=0),
    ]
    result = _found(build_problem(ops, Machine(3)), 500)
    # One wrong move anywhere would be an infeasible trial, and then none of the best.
    devices = result.best.placement.device_of_op
    assert devices[1] == 1
    assert devices[2] != 1
    assert devices[0] == devices[7]
    assert result.num_infeasible == 0


def test_goes_from_what_does_not_fit_to_what_fits():
    # Four towers' worth of variables on three devices that hold two each.
    ops = [Op(f"v{i}", 1.0, persistent=10) for i in range(6)]
    problem = build_problem(ops, Machine(3, memory=20))
    policy = Multilevel(problem, starts=[np.zeros(6, dtype=np.int32)])
    policy._starts = policy._starts[:1]
    stage = Stage("annealing", lambda best: policy)
    result = search([stage], SimulatingEvaluator(problem, 1), Limits(np.inf, 500))
    assert sorted(result.best.placement.device_of_op.tolist()) == [0, 0, 1, 1, 2, 2]
    assert result.best.outcome.step_seconds == 2.0


@pytest.mark.parametrize("max_trials", [5, 6, 7, 20])
def test_trials_are_kept_to_the_number(max_trials):
    assert _found(two_towers(), max_trials).num_trials == max_trials


def test_ends_where_nothing_can_be_moved():
    problem = build_problem([Op("a", 1.0, pin=0)], Machine(2))
    assert _found(problem, 100).num_trials < 20

"""Tests of tfplace.algorithms.annealing.policy: what multilevel annealing finds, and when."""

import itertools

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem, random_graph, two_towers, unrolled_lstm
from tfplace.algorithms.annealing import policy as policy_module
from tfplace.algorithms.annealing.config import REPEATED_ROUNDS, ROUNDS, MultilevelConfig
from tfplace.algorithms.annealing.plan import Round
from tfplace.algorithms.annealing.policy import Multilevel
from tfplace.algorithms.table import one_shot_starts
from tfplace.grouping.fuse import fused_problem
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Burst
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator

MACHINE = Machine(3, latency=3e-5, bandwidth=1e10)


def _policy(problem, seed=0, **config):
    instance = Instance(problem, np.zeros(problem.num_ops, dtype=np.int32))
    starts = one_shot_starts(instance, seed)
    return Multilevel(problem, seed, starts, config=MultilevelConfig(**config))


def _found(problem, max_trials, seed=0, **config):
    stage = Stage("annealing", lambda best: _policy(problem, seed, **config))
    return search([stage], SimulatingEvaluator(problem, 1), Limits(np.inf, max_trials))


def test_finds_the_optimum_of_a_small_graph():
    problem = random_graph()
    everything = np.array(list(itertools.product((1, 2), repeat=12)), dtype=np.int32)
    optimum = Simulator(problem).run_many(everything)[0].min()
    result = _found(problem, 3000)
    assert result.best.outcome.step_seconds == optimum
    assert result.num_trials == 3000


def test_same_seed_same_result_whatever_the_clock_says():
    problem = random_graph(60)
    runs = [_found(problem, 700, seed, level_sizes=(4,)) for seed in (5, 5, 6)]
    histories = [[(trial, step) for trial, _, step in run.history] for run in runs]
    assert histories[0] == histories[1] != histories[2]
    assert np.array_equal(runs[0].best.placement.device_of_op, runs[1].best.placement.device_of_op)


@pytest.mark.parametrize(
    "seconds, trials, anneals", [(1.0, None, False), (30.0, None, True), (1.0, 9, True)]
)
def test_a_large_problem_is_annealed_where_its_levels_leave_time(
    seconds, trials, anneals, monkeypatch
):
    monkeypatch.setattr(policy_module, "LARGE_OPS", 10)
    monkeypatch.setattr(policy_module, "LEVEL_SECONDS_PER_OP", 0.1)
    problem = random_graph()  # its levels take 3 s at least, then
    policy = _policy(problem)
    evaluator = SimulatingEvaluator(problem, 1)
    while policy._starts:
        proposal = policy.propose()
        policy.learn(proposal, evaluator.evaluate(proposal.device_of_op))
    policy.allow(seconds, trials)
    assert (policy.propose() is not None) == anneals


def _driven(policy, problem, budgets):
    """Proposals and their outcomes, one for each (seconds, trials) that is left."""
    evaluator = SimulatingEvaluator(problem, 1)
    for budget in budgets:
        policy.allow(*budget)
        proposal = policy.propose()
        outcomes = evaluator.evaluate(proposal.device_of_op)
        yield proposal, outcomes, policy.learn(proposal, outcomes)


def test_what_a_chain_reports_is_what_the_simulator_says():
    problem = random_graph(60)
    start = np.ones((1, problem.num_ops), dtype=np.int32)
    policy = Multilevel(problem, 1, [lambda: start], config=MultilevelConfig(rounds=[Round(1)]))
    budgets = [(np.inf, 2000 - 95 * number) for number in range(21)]
    best, num_improvements = np.inf, 0
    for proposal, outcomes, scalars in _driven(policy, problem, budgets):
        seconds = [each.step_seconds for each in outcomes if isinstance(each, Measurement)]
        if isinstance(proposal, Burst) and seconds:
            # A chain on the whole problem knows that it is better than all before.
            assert len(seconds) == 1 and seconds[0] < best
            num_improvements += 1
        best = min([best, *seconds])
        assert scalars["best_energy"] == best
    assert num_improvements >= 2


def test_fused_rounds_come_first_and_the_whole_problem_last():
    problem = unrolled_lstm(2, 6, MACHINE)
    policy = _policy(problem)
    budgets = [(np.inf, 40_000 - 1000 * number) for number in range(40)]
    sizes = []
    for _ in _driven(policy, problem, budgets):
        if policy._population is not None:
            sizes.append(policy._population.problem.problem.num_ops)
    fused = fused_problem(problem).problem.num_ops
    assert [size for size, _ in itertools.groupby(sizes)] == [fused, problem.num_ops]
    # The whole problem has half of what annealing began with.
    assert sizes.index(problem.num_ops) == pytest.approx(len(sizes) / 2, abs=1)


@pytest.mark.parametrize(("num_steps", "rounds"), [(6, ROUNDS), (12, REPEATED_ROUNDS)])
def test_a_graph_that_is_mostly_repeated_gets_fewer_and_longer_runs(num_steps, rounds):
    problem = unrolled_lstm(2, num_steps, MACHINE)
    policy = _policy(problem)
    for _ in _driven(policy, problem, [(np.inf, 200_000)] * 100):
        if policy._population is not None:
            break
    assert policy._population.plan.rounds == rounds


@pytest.mark.parametrize("trials", [3000, None])
def test_the_whole_budget_is_used_whether_trials_or_seconds(trials):
    problem = random_graph(30)
    policy = _policy(problem, 0, burst_seconds=1e-3, burst_trials=5)
    budgets = [
        (20.0 * (1 - share), None if trials is None else round(trials * (1 - share)))
        for share in np.linspace(0.0, 0.99, 150)
    ]
    slots = []
    for _ in _driven(policy, problem, budgets):
        if policy._population is not None:
            slots.append(policy._population.slot_number)
    assert slots == sorted(slots)
    assert set(slots) == set(range(len(policy._population.plan.slots)))


def test_what_is_left_bounds_a_burst():
    problem = random_graph(30)
    policy = _policy(problem, 0)
    list(_driven(policy, problem, [(np.inf, 500)] * 7))
    for left, simulated in ((400, 100), (30, 28), (3, 2), (2, 1), (1, 1)):
        policy.allow(np.inf, left)
        assert policy.propose().num_simulated == simulated


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
    policy = Multilevel(problem, 0, [lambda: np.zeros((1, 6), dtype=np.int32)])
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

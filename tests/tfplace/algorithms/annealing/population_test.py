"""Tests of tfplace.algorithms.annealing.population."""

import numpy as np
import pytest

from tests.builders import Machine, two_towers, unrolled_lstm
from tfplace.algorithms.annealing.annealing_problem import (
    AnnealingProblem,
    Energy,
    fused_annealing_problem,
)
from tfplace.algorithms.annealing.chain import Phase
from tfplace.algorithms.annealing.config import MultilevelConfig
from tfplace.algorithms.annealing.plan import Round, plan_of
from tfplace.algorithms.annealing.population import NO_SLOT, Candidate, Population

MACHINE = Machine(3, latency=3e-5, bandwidth=1e10)
CONFIG = MultilevelConfig(level_sizes=(4, 16))
ROUNDS = [Round(4, is_fused=True), Round(2, is_fused=True), Round(1)]
PHASE = Phase(focus=0.5, temperature=0.01, num_trials=30)


@pytest.fixture(scope="module")
def problems():
    problem = unrolled_lstm(2, 6, MACHINE)
    fused = fused_annealing_problem(problem)
    assert fused is not None
    return {False: AnnealingProblem(problem), True: fused}


def _population(problems, rounds=ROUNDS, num_chains=2):
    return Population(problems, plan_of(rounds, num_chains), num_chains, 0, CONFIG)


def _start(problems):
    placement = np.ones(problems[False].problem.num_ops, dtype=np.int32)
    return Candidate(placement, problems[False].energy(placement, 10.0))


def _bests(population):
    return [(chain.best_energy, chain.best().tolist()) for chain in population.chains]


def _currents(population):
    return [chain.current_energy for chain in population.chains]


def _whole_energy(problems, best):
    whole = problems[True].to_whole(np.array(best[1], dtype=np.int32))
    return problems[False].energy(whole, 10.0)


def test_the_best_of_a_fused_round_by_the_whole_problem_go_on_to_the_next(problems):
    population, start = _population(problems), _start(problems)
    assert population.slot_number == NO_SLOT
    # The start is simulated as the fused problem has it.
    assert population.begin_slot(0, start) == 1
    fused = problems[True].energy(problems[True].from_whole(start.device_of_op), 10.0)
    assert _currents(population) == [fused, fused]
    population.run(PHASE, 2)
    results = _bests(population)
    assert population.begin_slot(1, start) == 0  # the same round: the start once more
    assert _currents(population) == [fused, fused]
    population.run(PHASE, 2)
    results += _bests(population)
    assert population.begin_slot(2, start) == 4
    assert _bests(population) == sorted(results, key=lambda each: _whole_energy(problems, each))[:2]


def test_the_last_round_begins_with_the_best_of_all_by_the_whole_problem(problems):
    population, start = _population(problems), _start(problems)
    for number in range(3):
        population.begin_slot(number, start)
        population.run(PHASE, 2)
    energy = min(_whole_energy(problems, best) for best in _bests(population))
    assert population.begin_slot(3, start) == 2
    assert _currents(population) == [min(energy, start.energy)] * 2
    # A known placement that is better is taken instead.
    population = _population(problems)
    for number in range(3):
        population.begin_slot(number, start)
        population.run(PHASE, 2)
    better = start._replace(energy=Energy(False, energy.seconds / 2))
    population.begin_slot(3, better)
    assert population.chains[0].best().tolist() == start.device_of_op.tolist()


def test_an_earlier_slot_begins_anew_from_the_best(problems):
    population, start = _population(problems), _start(problems)
    for number in range(4):
        population.begin_slot(number, start)
        population.run(PHASE, 2)
    assert population.begin_slot(0, start) == 1
    assert population.problem.is_fused
    fused = problems[True].from_whole(start.device_of_op).tolist()
    assert [chain.best().tolist() for chain in population.chains] == [fused, fused]


def test_chains_exchange_only_where_all_began_with_one_candidate(problems):
    population = _population(problems, [Round(2), Round(2), Round(1)])
    start = _start(problems)
    population.begin_slot(0, start)
    population.run(PHASE, 2)
    population.begin_slot(1, start)
    population.run(PHASE, 2)
    before = _currents(population)
    assert before[0] != before[1]
    population.exchange(1.0)
    assert _currents(population) == before
    population.begin_slot(2, start)
    population.run(PHASE, 2)
    before, bests = _currents(population), _bests(population)
    assert before[0] != before[1]
    population.exchange(0.0)  # its turn has not come
    assert _currents(population) == before
    population.exchange(0.12)  # one of nine parts is over
    assert _currents(population) == [min(before)] * 2
    assert _bests(population) == bests
    population.run(PHASE, 2)
    after = _currents(population)
    population.exchange(0.13)  # still the same turn
    assert _currents(population) == after


def test_each_improvement_is_reported_once(problems):
    population, start = _population(problems), _start(problems)
    population.begin_slot(0, start)
    population.run(PHASE, 2)
    reported = population.improvement(start.energy)
    best = min(_bests(population))
    np.testing.assert_array_equal(problems[True].from_whole(reported), best[1])
    assert population.improvement(start.energy) is None
    for number in (1, 2, 3):
        population.begin_slot(number, start)
    # On the whole problem an improvement is what is better than all that the evaluator has seen.
    energy = min(chain.best_energy for chain in population.chains)
    assert population.improvement(energy) is None
    assert population.improvement(Energy(False, energy.seconds * 1.01)) is not None


def test_fewer_chains_may_run(problems):
    population, start = _population(problems), _start(problems)
    population.begin_slot(0, start)
    population.run(PHASE, 1)
    moved = [chain.state()["random"].tolist() for chain in population.chains]
    fresh = _population(problems)
    fresh.begin_slot(0, start)
    begun = [chain.state()["random"].tolist() for chain in fresh.chains]
    assert moved[0] != begun[0] and moved[1] == begun[1]


def test_it_goes_on_from_its_state(problems):
    start = _start(problems)
    first, second = _population(problems), _population(problems)
    for number in range(3):
        first.begin_slot(number, start)
        first.run(PHASE, 2)
    first.improvement(start.energy)
    second.set_state(first.state())
    for population in (first, second):
        population.exchange(0.5)
        population.run(PHASE, 2)
        population.begin_slot(3, start)
        population.run(PHASE, 2)
    assert _bests(first) == _bests(second)
    np.testing.assert_equal(first.state(), second.state())


def test_a_state_of_another_problem_is_refused(problems):
    population = _population(problems)
    population.begin_slot(0, _start(problems))
    other = AnnealingProblem(two_towers(machine=MACHINE))
    stranger = _population({False: other, True: other})
    with pytest.raises(ValueError, match="has shape"):
        stranger.set_state(population.state())

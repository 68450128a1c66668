"""At a tie fewer devices win, then fewer transfers; devices that do nothing are dropped."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.problem import Infeasible
from tests.builders import Machine, Op, build_problem
from tfplace.choosing import ties
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import choose
from tfplace.choosing.ties import extent, simplest, without_idle
from tfplace.simulation.evaluator import SimulatingEvaluator

GPUS = Machine(3, bandwidth=1e9)


def _candidates(problem, **placements):
    simulator = SimulatingEvaluator(problem)
    arrays = [np.array(each, np.int32) for each in placements.values()]
    outcomes = simulator.evaluate(np.stack(arrays))
    return [Candidate(*each) for each in zip(placements, arrays, outcomes, strict=True)]


def _chain_with_a_scrap(scrap_seconds):
    """Two ops of a second each, one after the other, and one beside them."""
    ops = [Op("a"), Op("scrap", scrap_seconds), Op("b", inputs=["a:0"])]
    return build_problem(ops, GPUS)


@pytest.mark.parametrize(
    ("scrap", "verdict", "says"),
    [(0.005, "kept_single", "found gains 0.2 %"), (0.5, "placed", "0.800 of the best single")],
)
def test_a_second_gpu_has_to_gain_one_percent(scrap, verdict, says):
    problem = _chain_with_a_scrap(scrap)
    single = [1, 1, 1]
    candidates = _candidates(problem, given=single, single=single, found=[1, 2, 1])
    choice = choose(candidates, problem)
    assert choice.verdict == verdict
    assert says in choice.sentence


def test_of_equals_on_as_many_devices_the_one_with_fewer_transfers_wins():
    problem = build_problem([Op("a"), Op("b"), Op("c", 0.0, ["a:0"]), Op("d", 0.0, ["a:0"])], GPUS)
    scattered, together = _candidates(problem, scattered=[1, 2, 2, 1], together=[1, 2, 1, 1])
    assert extent(problem, scattered.device_of_op) == (2, 2, 1)
    assert simplest(problem, [scattered, together]) is together


def test_a_tensor_moves_once_to_a_device_with_several_users():
    problem = build_problem([Op("a"), Op("b", inputs=["a:0"]), Op("c", inputs=["a:0"])], GPUS)
    assert extent(problem, np.array([1, 2, 2])) == (2, 2, 1)
    assert extent(problem, np.array([0, 1, 2])) == (2, 3, 2)


def test_a_device_that_does_next_to_nothing_is_dropped():
    ops = [Op("a"), Op("b"), Op("nothing", 0.0, ["a:0"]), Op("last", 0.0, ["nothing:0"])]
    problem = build_problem(ops, Machine(4, bandwidth=1e9))
    (found,) = _candidates(problem, found=[1, 2, 3, 3])
    kept = without_idle(problem, SimulatingEvaluator(problem), found)
    assert len(set(kept.device_of_op.tolist())) == 2
    assert kept.step_seconds == found.step_seconds == 1.0


def test_what_is_pinned_stays_and_the_others_join_it():
    ops = [Op("a"), Op("held", 0.0, pin=2)]
    problem = build_problem(ops, GPUS)
    (found,) = _candidates(problem, found=[1, 2])
    kept = without_idle(problem, SimulatingEvaluator(problem), found)
    assert kept.device_of_op.tolist() == [2, 2]


def test_what_does_not_fit_one_device_stays_on_two():
    ops = [Op("a", persistent=6), Op("b", 0.0, persistent=6)]
    problem = build_problem(ops, Machine(3, memory=10))
    (found,) = _candidates(problem, found=[1, 2])
    kept = without_idle(problem, SimulatingEvaluator(problem), found)
    assert not isinstance(kept.outcome, Infeasible)
    assert kept is found


def test_of_too_many_pairs_of_devices_those_that_send_each_other_most_are_tried(monkeypatch):
    ops = [Op("a", outputs=(8,)), Op("b", inputs=["a:0"], outputs=(8,)), Op("c", outputs=(1,))]
    ops.append(Op("scrap", 0.001, ("b:0", "c:0")))
    problem = build_problem(ops, Machine(5, bandwidth=1e9))
    (found,) = _candidates(problem, found=[1, 2, 3, 4])
    monkeypatch.setattr(ties, "LEAST_PAIRS", 1)
    (tried,) = ties._without_one(problem, found, 0)
    assert sorted(tried.tolist()) in ([1, 2, 2, 3], [1, 3, 4, 4])  # scrap and b together
    assert tried[1] == tried[3]


def test_sparing_many_devices_takes_no_longer_than_sparing_one(monkeypatch):
    monkeypatch.setattr(ties, "MOST_OPS", 1000)
    problem = build_problem([Op(f"op{i}", 0.001) for i in range(20)] + [Op("long", 9.0)],
                            Machine(22, bandwidth=1e9))  # fmt: skip
    (found,) = _candidates(problem, found=range(1, 22))
    simulator, simulated = SimulatingEvaluator(problem), []
    evaluate = simulator.evaluate
    simulator.evaluate = lambda rows: simulated.append(rows.size) or evaluate(rows)
    kept = without_idle(problem, simulator, found)
    assert len(set(kept.device_of_op.tolist())) == 1
    assert simulated[0] <= 500 and sum(simulated) <= 1000 + 20 * ties.LEAST_PAIRS * problem.num_ops

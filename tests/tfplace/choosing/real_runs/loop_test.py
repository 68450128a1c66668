"""Rehearsals on bad machines: the truth is made up, and the loop has to end near its best.

What can be reached is a pool of placements; a search returns the pool's best on the machine that
it is told, so that the best of the truth is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from graphs.cluster import Interval
from graphs.machine_numbers import on_taught_machine
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Infeasible, Problem
from tests.builders import Machine
from tests.tfplace.choosing.real_runs.machines import lstm, placements_of, theta_of
from tfplace.choosing.baselines import Plan
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.loop import measured_loop
from tfplace.choosing.real_runs.plan import Learned, LoopConfig, with_own_names
from tfplace.simulation.simulator import Simulator

RUNS = 7
POOL_SIZE = 120
MOST_RUNS = 6 * 6 * RUNS
NEAR = 0.03
Truth = Callable[[IntArray], FloatArray]
Disturb = Callable[[np.random.Generator, int, int], float]


def _quiet(rng: np.random.Generator, number: int, run: int) -> float:
    return 1.0


class _Machine:
    """What really happens: true seconds, and what disturbs a run."""

    def __init__(self, true_seconds: Truth, disturb: Disturb = _quiet) -> None:
        self._true_seconds, self._disturb = true_seconds, disturb
        self._rng = np.random.default_rng(5)
        self.num_runs, self.num_rounds = 0, 0

    def measure(self, plans: Sequence[Plan]) -> list[FloatArray | Infeasible]:
        truth = self._true_seconds(np.array([plan.device_of_op for plan in plans]))
        runs = np.empty((RUNS, len(plans)))
        for run in range(RUNS):
            for index in range(len(plans)):
                noise = np.exp(0.01 * self._rng.standard_normal())
                disturbed = self._disturb(self._rng, self.num_rounds, self.num_runs)
                runs[run, index] = truth[index] * noise * disturbed
                self.num_runs += 1
        self.num_rounds += 1
        return list(runs.T)


def _best_of(pool: IntArray) -> Callable[[Problem, IntArray, int], IntArray]:
    def search(problem: Problem, starts: IntArray, seed: int) -> IntArray:
        every = np.concatenate([pool, starts])
        found: IntArray = every[np.argmin(Simulator(problem, 1).run_many(every)[0])]
        return found

    return search


def _rehearse(model: ForwardModel, pool: IntArray, machine: _Machine, seed: int = 1) -> Learned:
    best = _best_of(pool)(model.problem, pool[:1], 0)
    first = [Plan("best by prediction", best), Plan("single", pool[0]), Plan("any", pool[40])]
    config = LoopConfig(seed=seed, max_drawn=12)
    known = [Plan(f"known {index}", placement) for index, placement in enumerate(pool)]
    return measured_loop(model, first, known, machine.measure, _best_of(pool), config)


def _require_near_best(truth: Truth, pool: IntArray, learned: Learned, machine: _Machine) -> None:
    best = float(truth(pool).min())
    found = float(truth(learned.seconds[0][0].device_of_op[None])[0])
    assert found <= best * (1.0 + NEAR), [
        [(step.name, step.predicted_seconds, step.measured_seconds) for step in each.measured]
        for each in learned.rounds
    ]
    assert machine.num_runs <= MOST_RUNS


def _pool(problem: Problem) -> IntArray:
    return placements_of(problem, POOL_SIZE, seed=3)


def _truth(model: ForwardModel, values: Mapping[str, float]) -> Truth:
    """Steps on the machine whose numbers are so."""
    theta = theta_of(model, values)
    return lambda placements: model.seconds(theta, placements)


def _rehearse_on(truth: Truth, model: ForwardModel, disturb: Disturb = _quiet) -> Learned:
    """A loop that begins with a model, on a machine of the truth; it ends near the best."""
    machine, pool = _Machine(truth, disturb), _pool(model.problem)
    learned = _rehearse(model, pool, machine)
    _require_near_best(truth, pool, learned, machine)
    return learned


WRONG_LINKS = {"link_latency": 12.0, "link_bytes_per_second": 0.05}
SLOW_DEVICE = {"speed of /device:CPU:1": 0.25}


def _heavy_tails(rng: np.random.Generator, number: int, run: int) -> float:
    """A third of all runs is disturbed, some of them much (Pareto, α = 1)."""
    return 1.0 + float(rng.pareto(1.0)) if rng.random() < 0.33 else 1.0


def _drift(rng: np.random.Generator, number: int, run: int) -> float:
    """Each round finds the machine 20 % slower than the one before."""
    return 1.2**number


def _stalls(rng: np.random.Generator, number: int, run: int) -> float:
    """All of the second round, and now and then a run, takes ten times as long."""
    return 10.0 if number == 1 or rng.random() < 0.1 else 1.0


@pytest.mark.parametrize("has_executor", [False, True])
@pytest.mark.parametrize("values", [{}, WRONG_LINKS, SLOW_DEVICE, {**WRONG_LINKS, **SLOW_DEVICE}])
def test_a_machine_that_is_not_what_it_was_taken_for(values, has_executor):
    model = ForwardModel(lstm(has_executor=has_executor))
    _rehearse_on(_truth(model, values), model)


@pytest.mark.parametrize("disturb", [_heavy_tails, _drift, _stalls])
def test_a_machine_that_is_never_quiet(disturb):
    model = ForwardModel(lstm())
    _rehearse_on(_truth(model, {**WRONG_LINKS, **SLOW_DEVICE}), model, disturb)


def test_an_executor_with_another_order_and_ops_of_other_prices():
    problem = lstm(has_executor=True)
    rng = np.random.default_rng(2)
    assert problem.executor is not None
    places = np.arange(problem.num_ops) + rng.normal(0.0, 20.0, problem.num_ops)
    turn = places.argsort().argsort().astype(np.int32)[None]
    other = dataclasses.replace(
        problem,
        executor=dataclasses.replace(problem.executor, op_turn=turn),
        op_seconds=problem.op_seconds * np.exp(0.05 * rng.standard_normal((problem.num_ops, 1))),
    )
    simulator = Simulator(other, 1)
    _rehearse_on(lambda placements: simulator.run_many(placements)[0], ForwardModel(problem))


TAUGHT = {
    "link_latency": (12.0, 8.0, 18.0),
    "link_bytes_per_second": (0.05, 0.03, 0.08),
    "speed of /device:CPU:1": (0.25, 0.23, 0.27),
}


def _taught_model(taught: Mapping[str, Interval]) -> ForwardModel:
    """As a second run has it: the problem is on the machine that was taught."""
    cluster = dataclasses.replace(Machine(2, types=["CPU", "CPU"]).cluster(), taught=taught)
    return ForwardModel(on_taught_machine(lstm(), cluster), spread_share=0.4, taught=taught)


def _rehearse_again(values: Mapping[str, float]) -> tuple[ForwardModel, Learned]:
    """A second run on a machine of TAUGHT, whose truth is now `values`."""
    model = _taught_model(TAUGHT)
    return model, _rehearse_on(_truth(ForwardModel(lstm()), values), model)


def test_what_a_machine_taught_is_what_the_next_run_begins_with():
    model, learned = _rehearse_again({**WRONG_LINKS, **SLOW_DEVICE})
    first = learned.rounds[0].measured
    missed = [(step.measured_seconds or 0.0) / step.predicted_seconds - 1.0 for step in first]
    assert np.abs(missed).max() < 0.05
    assert learned.corrections.model.has_been_taught
    assert learned.corrections.values()["link_latency"][0] == pytest.approx(12.0, rel=0.3)
    assert np.all(model.spread <= ForwardModel(lstm(), spread_share=0.4).spread)


@pytest.mark.parametrize("values", [{}, {"link_latency": 12.0, "speed of /device:CPU:0": 0.4}])
def test_what_no_longer_fits_is_forgotten_after_the_first_round(values):
    _, learned = _rehearse_again(values)
    assert not learned.corrections.model.has_been_taught
    assert learned.rounds[-1].corrected["speed of /device:CPU:1"][0] > 0.7


def test_the_problem_of_a_taught_machine_is_corrected_once():
    starting = {"op_dispatch_seconds": (3e-6, 1e-6, 5e-6), "step_start_seconds": (1e-3, 0.0, 2e-3)}
    taught = {**TAUGHT, **starting}
    raw, model = ForwardModel(lstm()), _taught_model(taught)
    placements = placements_of(raw.problem, 6)
    theta = theta_of(raw, {name: value for name, (value, _, _) in taught.items()})
    assert model.as_taken == pytest.approx(theta)
    for each in (theta, raw.as_taken):  # what the cluster's dispatch has of a start is known
        assert model.seconds(each, placements) + 1e-3 == pytest.approx(
            raw.seconds(each, placements)
        )


def test_where_the_prediction_is_right_the_loop_soon_ends():
    model = ForwardModel(lstm())
    pool = _pool(model.problem)
    machine = _Machine(lambda placements: model.seconds(model.as_taken, placements))
    assert len(_rehearse(model, pool, machine).rounds) <= 3


def test_what_can_not_run_is_said_and_never_tried_again():
    model = ForwardModel(lstm())
    pool = _pool(model.problem)
    asked: list[str] = []

    def measure(plans: Sequence[Plan]) -> list[FloatArray | Infeasible]:
        asked.extend(plan.name for plan in plans)
        return [Infeasible("timeout", "it stalled") for _ in plans]

    learned = measured_loop(
        model, [Plan("a", pool[2]), Plan("same", pool[2])], [], measure, _best_of(pool)
    )
    assert asked == ["a"]
    assert not learned.seconds
    assert [why.message for _, why in learned.failed] == ["it stalled"]
    assert learned.rounds[0].measured[0].measured_seconds is None
    assert learned.rounds[0].corrected["link_latency"][0] == 1.0


def test_without_time_nothing_is_measured():
    model = ForwardModel(lstm())
    pool = _pool(model.problem)
    machine = _Machine(lambda placements: np.ones(len(placements)))
    plans = [Plan("a", pool[0])]
    learned = measured_loop(
        model, plans, [], machine.measure, _best_of(pool), has_time=lambda plans: False
    )
    assert (learned.rounds, machine.num_runs) == ([], 0)


def test_two_placements_of_one_name_are_told_apart():
    model = ForwardModel(lstm())
    pool = _pool(model.problem)
    first = [Plan("found", pool[0]), Plan("found", pool[40]), Plan("other", pool[0])]
    machine = _Machine(lambda placements: model.seconds(model.as_taken, placements))
    known = [Plan("found", pool[41]), Plan("known", pool[40])]
    learned = measured_loop(
        model, first, known, machine.measure, _best_of(pool), LoopConfig(max_rounds=1)
    )
    assert [step.name for step in learned.rounds[0].measured] == ["found", "found (2)"]
    names = [plan.name for plan in with_own_names([*first, *known])]
    assert names == ["found", "found (2)", "found", "found (3)", "found (2)"]

"""How long a round takes, said beforehand, and what a first one is filled with; nothing runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tfplace.choosing.real_runs.machines import lstm, placements_of
from tfplace.choosing.baselines import Plan
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs import held_runs as real_runs
from tfplace.choosing.real_runs.contest import others_to_learn_from
from tfplace.choosing.real_runs.held_runs import FIRST_ROUND, ROUND, RealRuns
from tfplace.measurement.run_measurement import Timings
from tfplace.progress import Progress

STEP_SECONDS = 0.3


def _slow_model() -> ForwardModel:
    """A step on one device takes STEP_SECONDS, as predicted."""
    problem = lstm()
    single = ForwardModel(problem).seconds(np.zeros(6), np.zeros((1, problem.num_ops), np.int32))
    scale = STEP_SECONDS / single[0]
    return ForwardModel(dataclasses.replace(problem, op_seconds=scale * problem.op_seconds))


MODEL = _slow_model()
PLANS = [Plan(str(i), row) for i, row in enumerate(placements_of(MODEL.problem, 12, seed=3))]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Real runs that take 0.6 times as long as predicted; what limits they had."""
    made = SimpleNamespace(limits=[])
    predicted = {p.name: MODEL.seconds(MODEL.as_taken, p.device_of_op[None])[0] for p in PLANS}

    def measure(variants: Mapping[str, Any], run: Any, cluster: Any, limits: Any, held: Any) -> Any:
        made.limits.append(limits)
        return {
            name: Timings(np.full(5, 0.6 * predicted[name]), "session", {}, True)
            for name in variants
        }

    monkeypatch.setattr(real_runs, "measure_variants", measure)
    held: Any = SimpleNamespace(process=SimpleNamespace(alive=False, seconds_left=60.0))
    prepared: Any = SimpleNamespace(
        problem=MODEL.problem,
        cluster=SimpleNamespace(name="workers:2"),
        placed_run_graph=lambda placement: None,
        training_run=lambda: None,
    )
    return RealRuns(prepared, held, 0, MODEL, Progress()), made.limits


def test_a_first_round_of_four_placements_fits_into_a_minute(runs: Any) -> None:
    assert runs[0].seconds_of([PLANS[0], *PLANS[2:5]]) < 20.0


def test_what_steps_really_take_is_learned(runs: Any) -> None:
    real, limits = runs
    before = real.seconds_of(PLANS[5:7])
    real.measure(PLANS[:4])
    real.held.process.alive = True
    assert real.slower == pytest.approx(0.6 * real_runs.SLOWER_THAN_MEASURED)
    assert real.seconds_of(PLANS[5:7]) < before / 2.0
    real.measure(PLANS[4:6])
    assert [each.min_steps for each in limits] == [FIRST_ROUND.min_steps, ROUND.min_steps]


def test_what_is_to_be_found_counts_as_the_slowest_that_is_known(runs: Any) -> None:
    nothing = Plan("to be found", np.empty(0, np.int32))
    seconds = [runs[0].step_seconds(plan) for plan in PLANS[:4]]
    assert runs[0].step_seconds(nothing) == max(seconds)


def test_a_first_round_is_filled_with_what_is_unlike_and_not_much_slower() -> None:
    planned: Sequence[Plan] = [PLANS[0], PLANS[2]]
    nearly = PLANS[2].device_of_op.copy()
    nearly[:3] = 1 - nearly[:3]
    known = [Plan("nearly the same", nearly), *PLANS]
    others = others_to_learn_from(MODEL, planned, known, 2)
    assert len(others) == 2
    assert not {plan.name for plan in others} & {"nearly the same", "0", "1", "2"}
    one, other = others
    assert np.mean(one.device_of_op != other.device_of_op) >= 0.05
    assert others_to_learn_from(MODEL, planned, PLANS[:2], 2) == []

"""Rounds of real runs, made up here, before given and single are compared with what won."""

from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.tfplace.choosing.real_runs.machines import lstm, placements_of, theta_of
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.outcomes import Decided, Found
from tfplace.choosing.real_runs import contest
from tfplace.choosing.real_runs import measured_choice as time_choice
from tfplace.choosing.real_runs.held_runs import SECONDS_PER_OP
from tfplace.choosing.run_results import Comparison
from tfplace.measurement.timing import Timing
from tfplace.progress import Progress
from tfplace.search.instance import Instance
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator

MODEL = ForwardModel(lstm())
TRUTH = theta_of(MODEL, {"link_latency": 8.0, "link_bytes_per_second": 0.1})
POOL = placements_of(MODEL.problem, 40, seed=3)


class _Runs:
    """Real runs on the true machine, without noise; a round takes a second."""

    def __init__(self, prepared: Any, held: Any, *others: Any) -> None:
        self._held, self.than_predicted = held, 1.0

    def measure(self, plans: Any) -> Any:
        self._held.measured.append([plan.name for plan in plans])
        placements = np.array([plan.device_of_op for plan in plans])
        return [np.full(5, seconds) for seconds in MODEL.seconds(TRUTH, placements)]

    def seconds_of(self, plans: Any) -> float:
        return 10.0


class _Pool:
    """Finds the best of POOL."""

    def __init__(self, *others: Any) -> None:
        self.seconds = 1.0

    def __call__(self, problem: Any, starts: Any, number: int) -> Any:
        return POOL[np.argmin(Simulator(problem, 1).run_many(POOL)[0])]


def _candidate(name: str, placement: Any) -> Candidate:
    outcome = SimulatingEvaluator(MODEL.problem, 1).evaluate(placement[None])[0]
    return Candidate(name, placement, outcome)


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Chooses with so many seconds for real runs; returns what was decided and measured."""
    held = SimpleNamespace(measured=[], process=SimpleNamespace(alive=False), verdict="faster")

    def compare(prepared: Any, placements: Any, *others: Any) -> Comparison:
        held.measured.append(list(placements))
        steps = MODEL.seconds(TRUTH, np.array(list(placements.values())))
        timings = {
            name: Timing(seconds, 0.99 * seconds, 1.01 * seconds, 10)
            for name, seconds in zip(placements, steps, strict=True)
        }
        said = 1.5, (1.25, 1.75), "tf.function", held.verdict, 0.1
        return Comparison(timings, "single", *said)

    monkeypatch.setattr(contest, "RealRuns", _Runs)
    monkeypatch.setattr(contest, "Annealing", _Pool)
    monkeypatch.setattr(time_choice, "compare", compare)
    monkeypatch.setattr(time_choice, "child_for", lambda *others: contextlib.nullcontext(held))
    found = _Pool()(MODEL.problem, None, 0)
    candidates = [_candidate("single", POOL[0]), _candidate("found by auto", found)]
    prepared = _prepared()
    options: Any = SimpleNamespace(seed=0, evaluator="auto", budget_seconds=30.0)
    searched = Searched(candidates[:1], candidates, None)  # type: ignore[arg-type]
    choice = Choice(candidates[1], "placed", "faster")

    def decided(
        seconds: float, by_prediction: Choice = choice, unsplit: Any = None, verdict: str = "faster"
    ) -> tuple[Decided, list[list[str]]]:
        found, held.verdict = Found(prepared, searched), verdict
        whole = None if unsplit is None else Found(unsplit, searched)
        arguments = found, options, Progress(), seconds, None, by_prediction, whole
        return time_choice.time_choice(*arguments), held.measured

    return decided


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What of a prepared model the choice needs."""

    flat: Any
    instance: Any
    cluster: Any
    problem: Any = MODEL.problem
    unlimited: Any = None
    is_present: bool = True


def _prepared() -> Any:
    cluster = SimpleNamespace(
        name="workers:2", taught={}, transfer_work=None, dispatch_seconds=lambda *others: 0.0
    )
    return _Prepared(SimpleNamespace(fetches=[]), Instance(MODEL.problem, POOL[0]), cluster)


def test_without_time_for_rivals_the_best_prediction_is_compared(decide: Any) -> None:
    decided, measured = decide(12.0)
    assert measured == [["single", "placed"]]
    (only,) = decided.rounds  # the comparison teaches, too
    assert [each.name for each in only.measured] == ["single", "placed"]
    written = decided.choice.candidate
    seconds = MODEL.seconds(TRUTH, written.device_of_op[None])[0]
    assert only.measured[1].measured_seconds == pytest.approx(seconds)
    assert abs(only.measured[1].predicted_seconds / seconds - 1.0) > 0.2
    assert written.step_seconds == pytest.approx(seconds, rel=0.1)
    assert decided.choice.sentence.startswith("measured 1.50x")


def test_the_written_placement_ran_fastest_and_is_predicted_by_the_corrected_simulator(
    decide: Any,
) -> None:
    decided, measured = decide(600.0)
    assert measured[0][:2] == ["found by auto", "single"]
    assert measured[-1] == ["single", "placed"]
    written = decided.choice.candidate
    seconds = MODEL.seconds(TRUTH, POOL)
    assert MODEL.seconds(TRUTH, written.device_of_op[None])[0] <= 1.03 * seconds.min()
    assert written.step_seconds == pytest.approx(
        MODEL.seconds(TRUTH, written.device_of_op[None])[0], rel=0.1
    )
    assert decided.rounds[0].corrected["link_latency"][0] > 2.0
    latency = decided.prepared.problem.link_latency
    assert np.array_equal(decided.corrected(MODEL.problem).link_latency, latency)
    assert decided.searched.baselines[0].step_seconds > 0.0
    assert len(decided.timings.tried) <= time_choice.MOST_TRIED


def test_one_device_is_measured_against_the_best_over_several_where_that_is_close(
    decide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = theta_of(MODEL, {"link_latency": 0.01, "link_bytes_per_second": 100.0})
    monkeypatch.setitem(globals(), "TRUTH", quick)
    single = Choice(_candidate("single", POOL[0]), "kept_single", "one device is best")
    decided, measured = decide(600.0, single)
    assert measured[0][:2] == ["single", "found by auto"]
    assert decided.choice.verdict == "placed"
    assert len(np.unique(decided.choice.candidate.device_of_op)) == 2


def test_a_step_that_is_too_short_to_time_stays_on_one_device() -> None:
    short = Candidate("single", POOL[0], Measurement(1e-3, (0, 0), "simulated"))
    other = Candidate("found", POOL[5], Measurement(1.1e-3, (0, 0), "simulated"))
    searched = Searched([short], [short, other], None)  # type: ignore[arg-type]
    assert not contest.is_open(searched, Choice(short, "kept_single", ""))
    long = Candidate("single", POOL[0], Measurement(1.0, (0, 0), "simulated"))
    assert not contest.is_open(
        Searched([long], [long], None),  # type: ignore[arg-type]
        Choice(long, "kept_single", ""),
    )
    assert contest.is_open(searched, Choice(other, "placed", ""))


def test_a_search_whose_find_could_not_be_measured_is_not_begun(
    decide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(contest, "time", clock)
    monkeypatch.setattr(time_choice, "time", clock)
    begun: list[float] = []

    def anneal(self: _Pool, problem: Any, starts: Any, number: int) -> Any:
        begun.append(clock.now)
        clock.now += 20.0
        return POOL[len(begun)]

    monkeypatch.setattr(_Pool, "__call__", anneal)
    decide(50.0)  # the rounds have 40 s of it; a round takes 10 s
    assert begun == [0.0, 20.0]


@pytest.mark.parametrize(("search_seconds", "num_measured"), [(1.0, 3), (5.0, 2)])
def test_rivals_are_sought_only_as_many_as_there_is_time_to_measure(
    decide: Any, monkeypatch: pytest.MonkeyPatch, search_seconds: float, num_measured: int
) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(contest, "time", clock)
    monkeypatch.setattr(time_choice, "time", clock)
    monkeypatch.setattr(_Runs, "seconds_of", lambda self, plans: 6.0 * len(plans))

    def anneal(self: _Pool, problem: Any, starts: Any, number: int) -> Any:
        clock.now += search_seconds
        return POOL[number + 1]

    monkeypatch.setattr(_Pool, "__call__", anneal)
    _, measured = decide(28.0)  # the rounds have some 22 s of it
    assert len(measured[0]) == num_measured
    assert measured[0][:2] == ["found by auto", "single"]


def test_where_a_split_step_is_not_faster_the_unsplit_one_is_kept(decide: Any) -> None:
    unsplit = dataclasses.replace(_prepared(), unlimited=MODEL.problem)
    decided, _ = decide(0.1, unsplit=unsplit, verdict="faster")
    assert decided.choice.verdict == "placed" and decided.prepared.unlimited is None
    decided, measured = decide(0.1, unsplit=unsplit, verdict="slower")
    assert measured[-1] == ["single", "placed"]
    assert decided.choice.verdict == "kept_single" and decided.choice.candidate.name == "single"
    assert decided.prepared.unlimited is not None and decided.timings is not None


def test_rounds_leave_time_to_all_that_is_compared(decide: Any) -> None:
    """Given is a placement of its own where single is another device, and must be prepared."""
    single, placed = _candidate("single", POOL[0]), _candidate("found by auto", POOL[2])
    given = _candidate("given", POOL[1])

    def reserved(*baselines: Candidate) -> float:
        searched = Searched(baselines, [*baselines, placed], None)  # type: ignore[arg-type]
        decided = Decided(_prepared(), searched, Choice(placed, "placed", "faster"))
        return time_choice._comparison_seconds(decided, None)

    steps = single.step_seconds + placed.step_seconds
    assert reserved(single) == pytest.approx(time_choice.COMPARED_STEPS * steps)
    preparing = SECONDS_PER_OP * MODEL.problem.num_ops
    more = time_choice.COMPARED_STEPS * given.step_seconds + preparing
    assert reserved(single, given) == pytest.approx(reserved(single) + more)
    same = dataclasses.replace(single, name="given")
    assert reserved(single, same) == reserved(single)

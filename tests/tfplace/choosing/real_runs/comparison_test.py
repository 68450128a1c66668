"""The order and the recoveries of an interleaved measurement, on a process that is made up."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graphs.problem import Infeasible
from tests.tfplace.measurement.measure_graphs import LOGICAL_CPUS, cluster_of
from tfplace.measurement import run_measurement
from tfplace.measurement.run_measurement import Timings, held_runs, measure_variants
from tfplace.measurement.training_run import (
    PreparedRun,
    PrepareRequest,
    ReleaseRequest,
    Request,
    StepLimits,
    StepRequest,
    TrainingRun,
    exactly,
)


class _Graph:
    """A GraphDef that is its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def SerializeToString(self) -> bytes:
        return self._name.encode()


class _Process:
    """Answers at once; a rule may make a request fail, or fail and end the process."""

    owns_all_tasks = False
    was_killed = False
    seconds_left = math.inf

    def __init__(self, rule: Callable[["_Process", Request, str], Any]) -> None:
        self._rule = rule
        self.held: dict[int, str] = {}
        self.log: list[str] = []
        self.num_starts = 0
        self.alive = False

    def __call__(self, *_: Any, **__: Any) -> "_Process":
        return self

    def __enter__(self) -> "_Process":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self.alive = False
        self.held.clear()

    def request(self, request: Request, timeout_seconds: float) -> Any:
        if not self.alive:
            self.alive = True
            self.num_starts += 1
        if isinstance(request, PrepareRequest):
            assert request.graph_def is not None
            self.held[request.slot] = request.graph_def.decode()
        name = self.held[request.slot]
        self.log.append(f"{type(request).__name__[0]}{name}")
        answer = self._rule(self, request, name)
        if isinstance(request, ReleaseRequest):
            del self.held[request.slot]
        if isinstance(answer, Infeasible) and answer.reason in ("crash", "timeout"):
            self.close()
        if answer is not None:
            return answer
        if isinstance(request, PrepareRequest):
            through = "tf.function" if request.through == "auto" else request.through
            return PreparedRun(through, {})
        return np.array([float(len(self.log))])


def _measure(
    monkeypatch: pytest.MonkeyPatch, process: _Process, names: Sequence[str], steps: int
) -> dict[str, Timings | Infeasible]:
    monkeypatch.setattr(run_measurement, "MeasuringProcess", process)
    limits = exactly(steps, warmup_steps=1)
    variants = {name: _Graph(name) for name in names}
    return measure_variants(variants, TrainingRun({}, []), cluster_of(LOGICAL_CPUS), limits)


def test_steps_are_interleaved_after_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(lambda process, request, name: None)
    results = _measure(monkeypatch, process, "AB", 2)
    assert process.log == ["PA", "PB", "SA", "SB", "SA", "SB", "SA", "SB"]
    seconds = {name: list(r.step_seconds) for name, r in results.items() if isinstance(r, Timings)}
    assert seconds == {"A": [5.0, 7.0], "B": [6.0, 8.0]}


def test_the_others_are_prepared_again_after_a_crash_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crashes_in_its_second_step(process: _Process, request: Request, name: str) -> Any:
        fails = isinstance(request, StepRequest) and process.log.count("SB") == 2
        return Infeasible("crash", "it ended") if name == "B" and fails else None

    process = _Process(crashes_in_its_second_step)
    results = _measure(monkeypatch, process, "AB", 2)
    assert process.log == ["PA", "PB", "SA", "SB", "SA", "SB", "PA", "SA", "SA"]
    assert results["B"] == Infeasible("crash", "it ended")
    assert isinstance(results["A"], Timings)
    assert list(results["A"].step_seconds) == [5.0, 9.0]
    assert process.num_starts == 2


def test_a_variant_whose_worker_was_killed_once_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_killed_in_its_second_step(process: _Process, request: Request, name: str) -> Any:
        step = isinstance(request, StepRequest) and name == "B"
        process.was_killed = process.num_starts == 1 and process.log.count("SB") == 2
        killed = step and process.was_killed
        return Infeasible("crash", "killed by SIGKILL") if killed else None

    process = _Process(is_killed_in_its_second_step)
    results = _measure(monkeypatch, process, "AB", 2)
    prepared_and_warm = ["PA", "PB", "SA", "SB"]
    assert process.log == [
        *prepared_and_warm,
        "SA",
        "SB",
        *prepared_and_warm,
        "SA",
        "SB",
        "SA",
        "SB",
    ]
    seconds = {name: list(r.step_seconds) for name, r in results.items() if isinstance(r, Timings)}
    assert seconds == {"A": [11.0, 13.0], "B": [12.0, 14.0]}


def _runs_until_clear(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str, int], float]
) -> dict[str, int]:
    """Runs of A and B, whose step i takes seconds(name, i); B is compared with A."""

    def timed(process: _Process, request: Request, name: str) -> Any:
        if not isinstance(request, StepRequest):
            return None
        return np.array([seconds(name, process.log.count(f"S{name}"))])

    monkeypatch.setattr(run_measurement, "MeasuringProcess", _Process(timed))
    limits, cluster = StepLimits(min_steps=10, max_steps=100), cluster_of(LOGICAL_CPUS)
    variants = {name: _Graph(name) for name in "AB"}
    results = measure_variants(variants, TrainingRun({}, []), cluster, limits, compared="B")
    return {name: len(r.step_seconds) for name, r in results.items() if isinstance(r, Timings)}


def test_a_clear_difference_stops_after_the_least_number_of_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = _runs_until_clear(monkeypatch, lambda name, step: 2.0 if name == "A" else 1.0)
    assert runs == {"A": 10, "B": 10}


def test_an_unclear_difference_goes_on_to_the_last_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(name: str, step: int) -> float:
        return 1.0 + 0.5 * ((step * 7 + (name == "B") * 3) % 11) / 11

    assert _runs_until_clear(monkeypatch, noisy) == {"A": 100, "B": 100}


def test_equal_graphs_on_a_quiet_machine_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = _runs_until_clear(monkeypatch, lambda name, step: 1.0 + 0.001 * (step % 3))
    assert runs == {"A": 10, "B": 10}


def test_all_go_through_a_session_where_one_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_function_of_b(process: _Process, request: Request, name: str) -> Any:
        through_session = isinstance(request, PrepareRequest) and name == "B"
        return PreparedRun("session", {}) if through_session else None

    process = _Process(no_function_of_b)
    results = _measure(monkeypatch, process, "AB", 1)
    assert process.log[:4] == ["PA", "PB", "PA", "SA"]  # B went through one at once
    assert [r.through for r in results.values() if isinstance(r, Timings)] == ["session"] * 2


def test_what_does_not_fit_beside_the_others_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def holds_one(process: _Process, request: Request, name: str) -> Any:
        full = isinstance(request, PrepareRequest) and len(process.held) > 1
        return Infeasible("memory", "two are too many") if full else None

    process = _Process(holds_one)
    results = _measure(monkeypatch, process, "AB", 1)
    assert process.log == ["PA", "PB", "RB", "SA", "SA", "PB", "SB", "SB"]
    assert [r.interleaved for r in results.values() if isinstance(r, Timings)] == [True, False]


def test_what_does_not_fit_alone_is_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room_for_b(process: _Process, request: Request, name: str) -> Any:
        prepares = isinstance(request, PrepareRequest)
        return Infeasible("memory", "too large") if prepares and name == "B" else None

    results = _measure(monkeypatch, _Process(no_room_for_b), "AB", 1)
    assert results["B"] == Infeasible("memory", "too large")
    assert isinstance(results["A"], Timings)


def test_what_is_held_is_not_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(lambda process, request, name: None)
    monkeypatch.setattr(run_measurement, "MeasuringProcess", process)
    limits, cluster = exactly(1, warmup_steps=1), cluster_of(LOGICAL_CPUS)
    with held_runs(cluster, math.inf, capacity=2) as held:
        for names in ("AB", "BC", "AC"):
            variants = {name: _Graph(name) for name in names}
            measure_variants(variants, TrainingRun({}, []), cluster, limits, held=held)
    prepared = [entry for entry in process.log if entry[0] in "PR"]
    assert prepared == ["PA", "PB", "RA", "PC", "RB", "PA"]


def test_after_a_crash_what_was_held_is_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(lambda process, request, name: None)
    monkeypatch.setattr(run_measurement, "MeasuringProcess", process)
    limits, cluster = exactly(1, warmup_steps=1), cluster_of(LOGICAL_CPUS)
    with held_runs(cluster, math.inf) as held:
        for _ in range(2):
            measure_variants({"A": _Graph("A")}, TrainingRun({}, []), cluster, limits, held=held)
            process.close()
    assert process.log == ["PA", "SA", "SA"] * 2

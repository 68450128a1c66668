"""Real runs end with the time that they were given; too few steps are no answer."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tests.tfplace.measurement.measure_graphs import LOGICAL_CPUS, WORKERS, cluster_of
from tfplace.measurement import measuring_process, run_measurement
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.training_run import (
    PreparedRun,
    PrepareRequest,
    StepLimits,
    StepRequest,
    TrainingRun,
)

CLUSTER = cluster_of(LOGICAL_CPUS)
OUT_OF_TIME = Infeasible("timeout", "the 9 s for real runs were used up")


class Clock:
    """Seconds that pass only where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Scripted:
    """A process in which a preparation and a step take a second each."""

    def __init__(self, clock: Clock, all_seconds: float) -> None:
        self._clock, self._all_seconds = clock, all_seconds
        self.alive, self.was_killed, self.owns_all_tasks = True, False, False
        self.process_ids: list[int] = []
        self._rng = np.random.default_rng(0)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def seconds_left(self) -> float:
        return self._all_seconds - self._clock.now

    def request(self, request: Any, timeout_seconds: float) -> Any:
        self._clock.now += 1.0
        if self.seconds_left < 0.0:
            self.alive = False
            return OUT_OF_TIME
        if isinstance(request, PrepareRequest):
            return PreparedRun("session", {})
        # So noisy that only the time ends it.
        return self._rng.lognormal(size=1) if isinstance(request, StepRequest) else None


class Unused:
    """A child that is ended before it is asked for anything."""

    connection = SimpleNamespace(send=None)

    def end(self) -> None:
        pass


class Graph:
    def SerializeToString(self) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("all_seconds", "num_steps"),
    [
        (2.0 + 2 * 6 + 1.5, 6),  # preparing, 6 rounds, so long that all count, no whole one more
        (2.0 + 2 * 9 + 0.5, 9),
        (2.0 + 2 * 2 + 1.0, None),  # fewer rounds than are wanted at least
        (3.0, None),
        (1.0, None),
    ],
)
def test_rounds_end_with_the_time(monkeypatch, all_seconds, num_steps):
    clock = Clock()
    monkeypatch.setattr(run_measurement, "time", clock)
    monkeypatch.setattr(
        run_measurement, "MeasuringProcess", lambda *_, **__: Scripted(clock, all_seconds)
    )
    limits = StepLimits(1, min_steps=3, max_steps=9, budget_seconds=1e9, all_seconds=all_seconds)
    results = measure_variants({"a": Graph(), "b": Graph()}, TrainingRun({}, []), CLUSTER, limits)
    for result in results.values():
        if num_steps is None:
            assert isinstance(result, Infeasible) and result.reason == "timeout"
        else:
            assert isinstance(result, Timings) and len(result.step_seconds) == num_steps


@pytest.mark.parametrize(
    ("left", "num_warm", "num_steps"),
    [
        (2 * 3 + 2 * 5 + 0.5, 0, 5),  # a round of long steps is warm enough, and counts
        (2 * 5 + 0.5, 0, 5),
        (2 * 4 + 0.5, 1, None),  # it is not worth trying
        (2 * 2 + 0.5, 1, None),
    ],
)
def test_little_time_goes_to_steps_that_count_and_none_where_it_would_not_do(
    monkeypatch, left, num_warm, num_steps
):
    clock = Clock()
    scripted = Scripted(clock, 2.0 + left)
    monkeypatch.setattr(run_measurement, "time", clock)
    monkeypatch.setattr(run_measurement, "MeasuringProcess", lambda *_, **__: scripted)
    limits = StepLimits(3, min_steps=5, max_steps=5, budget_seconds=1e9, all_seconds=2.0 + left)
    results = measure_variants({"a": Graph(), "b": Graph()}, TrainingRun({}, []), CLUSTER, limits)
    for result in results.values():
        if num_steps is None:
            assert isinstance(result, Infeasible) and "5 of each take about 10 s" in result.message
        else:
            assert isinstance(result, Timings) and len(result.step_seconds) == num_steps
    assert clock.now == 2 + 2 * (num_warm + (num_steps or 0))


def test_workers_that_start_too_slowly_are_out_of_time_too(monkeypatch):
    def start(num_workers, timeout_seconds, memory_bytes, num_threads):
        assert (timeout_seconds, num_threads) == (9.0, None)
        clock.now += timeout_seconds
        raise ClusterError("worker 0: it was not ready in time")

    clock = Clock()
    monkeypatch.setattr(measuring_process, "time", clock)
    monkeypatch.setattr(measuring_process, "start_workers", start)
    monkeypatch.setattr(measuring_process, "start_child", lambda module, environment: Unused())
    with MeasuringProcess(cluster_of(WORKERS), all_seconds=9.0) as process:
        assert process.request(StepRequest(0, 1), 100.0) == OUT_OF_TIME


def test_what_is_asked_after_the_time_starts_nothing(monkeypatch):
    monkeypatch.setattr(measuring_process, "start_child", None)
    with MeasuringProcess(CLUSTER, all_seconds=0.0) as process:
        answer = process.request(StepRequest(0, 1), 100.0)
        assert answer == Infeasible("timeout", "no time was left for it")
        assert process.num_starts == 0


@pytest.mark.parametrize(
    ("left", "num_steps"), [(2 + 20.5, 10), (2 + 14.5, 8), (2 + 9.5, 5), (2 + 7.5, None)]
)
def test_fewer_steps_than_wanted_are_a_time_down_to_five(monkeypatch, left, num_steps):
    clock = Clock()
    scripted = Scripted(clock, 2.0 + left)
    monkeypatch.setattr(run_measurement, "time", clock)
    monkeypatch.setattr(run_measurement, "MeasuringProcess", lambda *_, **__: scripted)
    limits = StepLimits(3, max_steps=10, budget_seconds=1e9, all_seconds=2.0 + left)
    results = measure_variants({"a": Graph(), "b": Graph()}, TrainingRun({}, []), CLUSTER, limits)
    made = [len(each.step_seconds) for each in results.values() if isinstance(each, Timings)]
    assert made == ([] if num_steps is None else [num_steps] * 2)

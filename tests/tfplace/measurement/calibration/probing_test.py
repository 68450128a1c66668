"""Probes take turns, as often as the limits say, and are released in the end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphs.clusters.discovery import find_cluster
from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tfplace.measurement.calibration.probe_graphs import step_probe
from tfplace.measurement.calibration.probing import Prober, median_difference
from tfplace.measurement.training_run import PrepareRequest, ReleaseRequest, StepLimits, StepRequest

LIMITS = StepLimits(warmup_steps=2, min_steps=3, max_steps=5)
PROBES = dict.fromkeys(("a", "b"), step_probe(["/device:CPU:0"]))


class FakeProcess:
    """Notes requests; each step takes a second longer than the last one."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.process_ids = [os.getpid()]
        self._seconds = itertools.count()

    def request(self, request: Any, timeout_seconds: float) -> Sequence[float] | None:
        self.requests.append(request)
        if isinstance(request, StepRequest):
            return [float(next(self._seconds)) for _ in range(request.num_steps)]
        return None


def _prober(process: Any) -> Prober:
    return Prober(process, find_cluster("local"), LIMITS)


def test_probes_take_turns_after_the_warm_up() -> None:
    process = FakeProcess()
    seconds = _prober(process).time(PROBES, 0.0)
    # Steps 0 and 1 warm up a, 2 and 3 b; then a and b in turn, for the least number of rounds.
    assert {key: rounds.tolist() for key, rounds in seconds.items()} == {
        "a": [4.0, 6.0, 8.0],
        "b": [5.0, 7.0, 9.0],
    }
    kinds = [type(request) for request in process.requests]
    assert kinds == [PrepareRequest, StepRequest] * 2 + [StepRequest] * 6 + [ReleaseRequest] * 2


def test_more_time_means_more_rounds_up_to_the_most() -> None:
    seconds = _prober(FakeProcess()).time(PROBES, 1e9)
    assert {key: len(rounds) for key, rounds in seconds.items()} == {"a": 5, "b": 5}


def test_a_step_that_fails_is_one_sentence() -> None:
    process = FakeProcess()
    process.request = lambda *_: Infeasible("timeout", "no answer in 60 s")  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match=r"calibrating local: a step .* \(timeout\): no answer"):
        _prober(process).time(PROBES, 0.0)


def test_a_difference_is_taken_round_by_round() -> None:
    slower_and_slower = np.array([1.0, 11.0, 21.0])
    # The medians' difference is 3, too; but round by round it is not that of 23 and 21.
    assert median_difference(np.array([4.0, 12.0, 23.0]), slower_and_slower) == 2.0

"""What a measuring process asks for and how long it waits, without a child."""

from typing import Any

import pytest

from graphs.placement import Infeasible
from tests.tfplace.measurement.measure_graphs import LOGICAL_CPUS, cluster_of
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.step_limits import StepLimits, exactly
from tfplace.measurement.training_run import (
    GraphRequest,
    PrepareRequest,
    Request,
    RuntimeConfig,
    StepRequest,
    TraceRequest,
    TrainingRun,
)

LIMITS = StepLimits(timeout_seconds=2.0, prepare_timeout_seconds=7.0)


@pytest.mark.parametrize(
    ("request_made", "seconds"),
    [
        (PrepareRequest(0, b"", TrainingRun({}, [])), 7.0),
        (StepRequest(0, 5), 10.0),
        (StepRequest(0, 0), 2.0),
        (TraceRequest(0, 3), 6.0),
        (GraphRequest(0), 2.0),
    ],
)
def test_each_step_has_its_time_and_a_failure_is_raised(
    monkeypatch: pytest.MonkeyPatch, request_made: Request, seconds: float
) -> None:
    asked = []

    def answer(self: MeasuringProcess, request: Request, timeout_seconds: float) -> Any:
        asked.append((request, timeout_seconds))
        return Infeasible("timeout", "too slow") if len(asked) > 1 else "answer"

    monkeypatch.setattr(MeasuringProcess, "request", answer)
    process = MeasuringProcess(cluster_of(LOGICAL_CPUS))
    assert process.ask(request_made, LIMITS) == "answer"
    with pytest.raises(RunFailedError, match="too slow") as caught:
        process.ask(request_made, LIMITS)
    assert caught.value.why == Infeasible("timeout", "too slow")
    assert asked == [(request_made, seconds)] * 2


@pytest.mark.parametrize(
    ("names", "num_cpus"),
    [
        (["/device:CPU:0"], 1),
        (["/device:CPU:0", "/device:CPU:2", "/device:GPU:5"], 3),
        (["/device:GPU:1"], 1),
        (["/job:worker/task:1/device:CPU:3"], 1),
    ],
)
def test_as_many_logical_cpus_as_the_names_of_this_host_tell_apart(
    names: list[str], num_cpus: int
) -> None:
    assert RuntimeConfig(names, [""] * len(names)).num_logical_cpus == num_cpus


def test_a_fixed_number_of_steps_has_the_same_least_and_most() -> None:
    limits = exactly(7, warmup_steps=2, seed=3)
    assert (limits.warmup_steps, limits.min_steps, limits.max_steps, limits.seed) == (2, 7, 7, 3)

"""What a measuring process asks for and how long it waits, without a child."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from graphs.problem import Infeasible
from graphs.source_model import Initialization
from tests.tfplace.measurement.measure_graphs import LOGICAL_CPUS, cluster_of
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.training_run import (
    GraphRequest,
    PrepareRequest,
    Request,
    RuntimeConfig,
    StepLimits,
    StepRequest,
    TraceRequest,
    TrainingRun,
    exactly,
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


@pytest.mark.parametrize("through", ["tf.function", "session"])
def test_steps_leave_nothing_behind(tmp_path: Path, through: str) -> None:
    with tf.Graph().as_default() as graph:
        written = tf.raw_ops.WriteFile(filename=str(tmp_path / "file"), contents="text")
        with tf.control_dependencies([written]):
            tf.constant(1.0, name="done")
    run = TrainingRun({}, ["done:0"], Initialization(init_ops=(written.name,)))
    request = PrepareRequest(0, graph.as_graph_def().SerializeToString(), run, through)
    with MeasuringProcess(cluster_of(["/device:CPU:0"])) as process:
        prepared = process.ask(request, StepLimits())
        process.ask(StepRequest(0, 2), StepLimits())
    assert prepared.outputs["done:0"] == 1.0
    assert not list(tmp_path.iterdir())


def test_a_fixed_number_of_steps_has_the_same_least_and_most() -> None:
    limits = exactly(7, warmup_steps=2, seed=3)
    assert (limits.warmup_steps, limits.min_steps, limits.max_steps, limits.seed) == (2, 7, 7, 3)

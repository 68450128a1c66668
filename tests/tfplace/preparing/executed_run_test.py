"""How many steps are traced in the time that there is."""

import dataclasses

import numpy as np
import pytest
from tensorflow.core.framework.graph_pb2 import GraphDef

from graphs.problem import Infeasible
from tfplace.measurement.measuring_process import RunFailedError
from tfplace.measurement.training_run import (
    GraphRequest,
    PrepareRequest,
    StepRequest,
    TraceRequest,
    TrainingRun,
)
from tfplace.preparing.executed_run import STEPS, _Looking


class _Process:
    """A child that takes `step` seconds for each step, and says so when its time is over."""

    process_ids = ()

    def __init__(self, step, all_seconds):
        self.step, self.all_seconds, self.now = step, all_seconds, 0.0

    @property
    def seconds_left(self):
        return self.all_seconds - self.now

    def ask(self, request, limits):
        slow = not isinstance(request, PrepareRequest) and request.slot == 0
        self.now += self.step * getattr(request, "num_steps", 1) if slow else 0.1
        if self.now > self.all_seconds:
            raise RunFailedError(Infeasible("timeout", "used up"))
        if isinstance(request, StepRequest):
            return np.full(request.num_steps, self.step)
        return ["trace"] if isinstance(request, TraceRequest) else [GraphRequest(0)]


@pytest.mark.parametrize(("step", "num_traces"), [(0.1, 22), (1.0, 2), (1.6, 2), (2.2, 1)])
def test_what_was_traced_is_kept_where_another_pair_would_end_too_late(
    step, num_traces, monkeypatch
):
    process = _Process(step, 9.0)
    monkeypatch.setattr("tfplace.preparing.executed_run.time.monotonic", lambda: process.now)
    limits = dataclasses.replace(STEPS, all_seconds=9.0)
    seen = _Looking(process, limits).look(GraphDef(), TrainingRun({}, ["x"]), "/device:CPU:0")
    assert len(seen.traces) == num_traces

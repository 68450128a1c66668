"""Several traced and untraced steps of one graph, and the graph that TensorFlow made of it."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.cluster import Cluster
from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from graphs.protos import GraphDef, Pickled
from tfplace.measurement.machine_load import LoadMeter
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.training_run import (
    ExecutedNode,
    GraphRequest,
    PrepareRequest,
    Request,
    StepLimits,
    StepRequest,
    TraceRequest,
    TrainingRun,
)

_RUN, _EMPTY = 0, 1  # slots
TRACED_THREADS = 1
"""Executor threads of a worker whose ops are timed: two ops at once on one core would each seem to
take up to twice as long."""
_EMPTY_STEPS = 20
_EMPTY_OP = "nothing"
STEPS = StepLimits(warmup_steps=1, min_steps=2, max_steps=25, budget_seconds=15.0)
"""Steps to trace, and as many untraced ones between them."""
LONGEST = 1.5
"""How much longer a pair of steps may take than the longest one before."""
STEPS_SHARE = 0.5
"""Of the time that is left when the run is prepared."""


@dataclasses.dataclass(frozen=True)
class ExecutedRun:
    """What was seen of a run.

    Attributes:
      traces: of single steps.
      step_seconds: f8[steps] wall time of untraced steps, made between the traced ones.
      dispatch_seconds: wall time of a step that does nothing on the same device.
      nodes: what a step runs, on all devices.
      background_share: share of this machine's CPU time that others used during the steps.
    """

    traces: Sequence[StepTrace]
    step_seconds: FloatArray
    dispatch_seconds: float
    nodes: Sequence[ExecutedNode]
    background_share: float = 0.0

    @property
    def work_seconds(self) -> float:
        """Wall time of an undisturbed step without its dispatch; 0 where that seemed to be more."""
        return max(_undisturbed_seconds(self.step_seconds) - self.dispatch_seconds, 0.0)

    def steady_traces(self) -> list[StepTrace]:
        """The traces of steps that nothing else on the machine disturbed."""
        totals = [float((trace.end_seconds - trace.start_seconds).sum()) for trace in self.traces]
        return [trace for trace, keep in zip(self.traces, steady(totals), strict=True) if keep]


def execute(
    graph_def: GraphDef, run: TrainingRun, cluster: Cluster, device: str, limits: StepLimits
) -> ExecutedRun | Infeasible:
    """Runs a graph through a v1 Session in a child process and looks at it.

    Args:
      graph_def: GraphDef with devices.
      cluster: where the devices are; workers without addresses are started and ended here.
      device: the one that is looked at; the empty step runs there.
      limits: how many steps are traced, and how long.
    """
    with MeasuringProcess(
        cluster, all_seconds=limits.all_seconds, executor_threads=TRACED_THREADS
    ) as process:
        try:
            return _Looking(process, limits).look(graph_def, run, device)
        except RunFailedError as failure:
            return failure.why


class _Looking:
    def __init__(self, process: MeasuringProcess, limits: StepLimits) -> None:
        self._process = process
        self._limits = limits

    def look(self, graph_def: GraphDef, run: TrainingRun, device: str) -> ExecutedRun:
        limits = self._limits
        self._prepare(_RUN, graph_def, run)
        # TensorFlow measures and optimizes in the first steps, traced or not. Preparing makes an
        # untraced one, and asking for the graph a traced one: enough for a step that takes long.
        began = time.monotonic()
        nodes = self._ask(GraphRequest(_RUN))
        took = time.monotonic() - began
        num_steps = limits.warmup_steps + 2 * limits.min_steps
        if num_steps * LONGEST * took < self._process.seconds_left:
            self._ask(StepRequest(_RUN, limits.warmup_steps))
        traces: list[StepTrace] = []
        seconds: list[float] = []
        meter = LoadMeter()
        meter.read(self._process.process_ids)
        left = self._process.seconds_left
        end = time.monotonic() + min(limits.budget_seconds, STEPS_SHARE * left)
        took = 0.0  # by the longest pair: what was traced is lost if another one ends too late
        while len(traces) < limits.max_steps and (
            (len(traces) < limits.min_steps and took < self._process.seconds_left / LONGEST)
            or time.monotonic() < end
        ):
            began = time.monotonic()
            seconds += self._ask(StepRequest(_RUN, 1)).tolist()
            traces += self._ask(TraceRequest(_RUN, 1))
            took = max(took, time.monotonic() - began)
        meter.read(self._process.process_ids)
        empty = type(graph_def)(versions=graph_def.versions)
        empty.node.add(name=_EMPTY_OP, op="NoOp", device=device)
        self._prepare(_EMPTY, empty, TrainingRun({}, [_EMPTY_OP]))
        return ExecutedRun(
            traces,
            np.array(seconds),
            _undisturbed_seconds(self._ask(StepRequest(_EMPTY, _EMPTY_STEPS))),
            nodes,
            meter.background_share or 0.0,
        )

    def _prepare(self, slot: int, graph_def: GraphDef, run: TrainingRun) -> None:
        graph = graph_def.SerializeToString()
        self._ask(PrepareRequest(slot, graph, run, "session", seed=self._limits.seed))

    def _ask(self, request: Request) -> Pickled:
        return self._process.ask(request, self._limits)


def _undisturbed_seconds(seconds: FloatArray) -> float:
    return float(np.median(seconds[steady(seconds.tolist())]))


DRIFT = 0.2
"""Share by which a step may exceed the undisturbed ones. Other work on the machine only ever adds
time, and adds more than this when it takes the core for a while."""


def steady(values: Sequence[float]) -> npt.NDArray[np.bool_]:
    """bool[n]: values within `DRIFT` of the median of the lower half.

    Args:
      values: seconds, repeated measurements of one thing, n >= 1.
    """
    found = np.asarray(values, dtype=np.float64)
    lower = np.sort(found)[: (len(found) + 1) // 2]
    return np.asarray(found <= np.median(lower) * (1.0 + DRIFT))

"""One placement, predicted in full: step time, peaks, what each device and link does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulator import Simulator


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What the simulator says of a placement.

    Attributes:
      step_seconds: the makespan; None where it can't run at all.
      feasible: whether it fits memory, kernels, pins and colocation.
      reason: why not, else empty.
      peak_bytes, ops_per_device, busy_share: {device: ...}.
      memory_bytes: {device: all of its memory}.
      transfers, transfer_bytes: of one step.
      communication: the channel rule; a predicted time means nothing without it.
    """

    step_seconds: float | None
    feasible: bool
    reason: str
    peak_bytes: Mapping[str, int]
    ops_per_device: Mapping[str, int]
    busy_share: Mapping[str, float]
    memory_bytes: Mapping[str, int]
    transfers: int
    transfer_bytes: int
    communication: str


def predict(problem: Problem, device_of_op: IntArray) -> Prediction:
    """Predicts a placement i4[N], feasible or not."""
    outcome = SimulatingEvaluator(problem).evaluate(device_of_op[None])[0]
    simulator = Simulator(problem)
    makespan, peaks = simulator.run(device_of_op)
    names = problem.device_names
    counts = np.bincount(device_of_op, minlength=len(names))
    finite = bool(np.isfinite(makespan))
    schedule = simulator.schedule(device_of_op) if finite else None
    return Prediction(
        step_seconds=makespan if finite else None,
        feasible=not isinstance(outcome, Infeasible),
        reason=outcome.message if isinstance(outcome, Infeasible) else "",
        peak_bytes=dict(zip(names, peaks.tolist(), strict=True)),
        ops_per_device=dict(zip(names, counts.tolist(), strict=True)),
        busy_share={} if schedule is None else busy_shares(problem, schedule),
        memory_bytes=dict(zip(names, problem.device_memory_bytes.tolist(), strict=True)),
        transfers=0 if schedule is None else len(schedule.transfers.tensor),
        transfer_bytes=0 if schedule is None else int(schedule.transfers.bytes.sum()),
        communication=problem.communication,
    )


def placements_per_second(problem: Problem, device_of_op: IntArray, repeat: int) -> float:
    """How fast a placement i4[N] is simulated, `repeat` times on all cores, compiling aside."""
    simulator = Simulator(problem)
    simulator.run(device_of_op)
    began = time.perf_counter()
    simulator.run_many(np.repeat(device_of_op[None], repeat, axis=0))
    return repeat / (time.perf_counter() - began)


def busy_shares(problem: Problem, schedule: Schedule) -> dict[str, float]:
    """{device: op seconds / (step seconds x slots)}."""
    work = np.bincount(
        schedule.device_of_op,
        weights=schedule.op_end - schedule.op_start,
        minlength=problem.num_devices,
    )
    full = max(schedule.makespan, 1e-30) * problem.device_slots
    return dict(zip(problem.device_names, (work / full).tolist(), strict=True))


def best_of_prediction(prediction: Prediction) -> Best:
    """A prediction as the report's `best`."""
    return Best(
        step_seconds=prediction.step_seconds if prediction.step_seconds is not None else np.inf,
        peak_bytes=prediction.peak_bytes,
        ops_per_device=prediction.ops_per_device,
        busy_share=prediction.busy_share,
        transfers=prediction.transfers,
        transfer_bytes=prediction.transfer_bytes,
    )


@dataclasses.dataclass(frozen=True)
class Best:
    """The placement that was written.

    Attributes:
      step_seconds: predicted.
      peak_bytes: {device: bytes}.
      ops_per_device: {device: ops}.
      busy_share: {device: share of the step in which it computes}.
      transfers, transfer_bytes: of one step.
    """

    step_seconds: float
    peak_bytes: Mapping[str, int]
    ops_per_device: Mapping[str, int]
    busy_share: Mapping[str, float]
    transfers: int
    transfer_bytes: int

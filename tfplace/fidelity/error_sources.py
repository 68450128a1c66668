"""Where predictions err: ops by type, transfers, and what is left, in traced steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Infeasible
from tfplace.measurement.step_limits import StepLimits
from tfplace.measurement.step_stats import StepTrace
from tfplace.preparing.executed_graph import attribute
from tfplace.preparing.executed_run import ExecutedRun, execute
from tfplace.preparing.prepare import PreparedModel, training_run
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulator import Simulator

TRACED_STEPS = StepLimits(warmup_steps=2, min_steps=3, max_steps=4, budget_seconds=15.0)


@dataclasses.dataclass(frozen=True)
class Amount:
    """Attributes: predicted_seconds, traced_seconds: of one step, summed over devices."""

    predicted_seconds: float
    traced_seconds: float


@dataclasses.dataclass(frozen=True)
class OpTypeError:
    """Attributes: op_type; num_ops; predicted_seconds, traced_seconds: sums over traced steps."""

    op_type: str
    num_ops: int
    predicted_seconds: float
    traced_seconds: float


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """One placement's predicted and traced step, taken apart.

    step x devices = compute + dispatch, on either side: a device that runs no op waits, moves
    tensors, or is in between ops.

    Attributes:
      name: of the placement.
      compute: op seconds.
      transfer: seconds from a tensor's sending until it is there, summed over transfers; they
        overlap with each other and with ops.
      num_transfers: predicted; num_traced_transfers: what the runtime moved.
      dispatch: all the time in which no op of the graph runs on a device.
      op_seconds: f8[N] traced.
    """

    name: str
    compute: Amount
    transfer: Amount
    num_transfers: int
    num_traced_transfers: int
    dispatch: Amount
    op_seconds: FloatArray = dataclasses.field(repr=False)


def traced_step(
    prepared: PreparedModel, name: str, device_of_op: IntArray, step_seconds: tuple[float, float]
) -> TracedStep | Infeasible:
    """Traces a placement and lays it beside its prediction.

    Args:
      prepared: the problem.
      name: of the placement.
      device_of_op: i4[N].
      step_seconds: predicted and measured.
    """
    seen = _look(prepared, device_of_op)
    if isinstance(seen, Infeasible):
        return seen
    schedule = Simulator(prepared.problem, num_threads=1).schedule(device_of_op)
    traces = seen.steady_traces()
    ops = _traced_op_seconds(prepared, seen, traces)
    compute = Amount(_seconds_at(prepared, device_of_op), float(ops.sum()))
    moved = [_transfer_seconds(trace) for trace in traces]
    devices = prepared.problem.num_devices
    predicted, measured = step_seconds
    return TracedStep(
        name=name,
        compute=compute,
        transfer=Amount(_predicted_transfers(schedule), float(np.median(moved))),
        num_transfers=len(schedule.transfers.tensor),
        num_traced_transfers=int(np.median([int(trace.is_transfer.sum()) for trace in traces])),
        dispatch=Amount(
            predicted * devices - compute.predicted_seconds,
            measured * devices - compute.traced_seconds,
        ),
        op_seconds=ops,
    )


def errors_by_op_type(
    prepared: PreparedModel, placements: Sequence[IntArray], steps: Sequence[TracedStep]
) -> list[OpTypeError]:
    """Predicted and traced seconds of each op type, summed over placements, largest error first.

    Fused ops' time is shared among the ops of the graph that they stand for, as in the costs.
    """
    types, index = np.unique(np.asarray(prepared.problem.graph.op_types), return_inverse=True)
    predicted, traced = np.zeros(len(types)), np.zeros(len(types))
    every = np.arange(prepared.problem.num_ops)
    for placement, step in zip(placements, steps, strict=True):
        np.add.at(predicted, index, prepared.problem.op_seconds[every, placement])
        np.add.at(traced, index, step.op_seconds)
    counts = np.bincount(index, minlength=len(types))
    rows = [
        OpTypeError(str(types[i]), int(counts[i]), float(predicted[i]), float(traced[i]))
        for i in range(len(types))
    ]
    return sorted(rows, key=lambda row: -abs(row.predicted_seconds - row.traced_seconds))


def _look(prepared: PreparedModel, device_of_op: IntArray) -> ExecutedRun | Infeasible:
    """Runs the flat graph under a placement, traced."""
    names = prepared.problem.device_names
    graph_def = type(prepared.flat.graph_def)()
    graph_def.CopyFrom(prepared.flat.graph_def)
    for node, op in zip(graph_def.node, prepared.built.op_of_node.tolist(), strict=True):
        node.device = names[device_of_op[op]]
    run = dataclasses.replace(
        training_run(prepared),
        fetches=prepared.flat.fetches,
        source_graph=prepared.source.graph_def,
    )
    return execute(graph_def, run, prepared.cluster, names[0], TRACED_STEPS)


def _traced_op_seconds(
    prepared: PreparedModel, seen: ExecutedRun, traces: Sequence[StepTrace]
) -> FloatArray:
    """f8[N]: median seconds of each op; what was fused into another has its share."""
    rows: dict[str, list[float]] = {}
    for trace in traces:
        seconds = trace.end_seconds - trace.start_seconds
        of_step: dict[str, float] = {}
        for op, took, moves in zip(trace.op_names, seconds, trace.is_transfer, strict=True):
            if not moves:
                of_step[op] = of_step.get(op, 0.0) + float(took)
        for op, took in of_step.items():
            rows.setdefault(op, []).append(took)
    medians = {op: float(np.median(values)) for op, values in rows.items()}
    cheapest = prepared.problem.op_seconds.min(axis=1)[prepared.built.op_of_node]
    of_node = attribute(prepared.flat.graph_def.node, seen.nodes).shared(medians, cheapest)
    total: FloatArray = np.bincount(
        prepared.built.op_of_node, of_node, minlength=prepared.problem.num_ops
    ).astype(np.float64)
    return total


def _seconds_at(prepared: PreparedModel, device_of_op: IntArray) -> float:
    every = np.arange(prepared.problem.num_ops)
    return float(prepared.problem.op_seconds[every, device_of_op].sum())


def _predicted_transfers(schedule: Schedule) -> float:
    return float((schedule.transfers.arrival - schedule.transfers.start).sum())


def _transfer_seconds(trace: StepTrace) -> float:
    return float((trace.end_seconds - trace.start_seconds)[trace.is_transfer].sum())

"""Where predictions of step times go wrong: traced steps, by ops, transfers and op types."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Infeasible, Problem
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.training_run import ExecutedNode, StepLimits
from tfplace.preparing.executed_graph import attribute
from tfplace.preparing.executed_run import execute
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulated import Simulated

TRACED_STEPS = StepLimits(warmup_steps=2, min_steps=3, max_steps=4, budget_seconds=15.0)


@dataclasses.dataclass(frozen=True)
class Amount:
    """Seconds of one step, summed over devices."""

    predicted_seconds: float  # by the simulator
    traced_seconds: float  # in traced steps


@dataclasses.dataclass(frozen=True)
class OpTypeError:
    """All ops of one type, over several traced steps."""

    op_type: str  # as TensorFlow calls it
    num_ops: int  # how many the graph has
    predicted_seconds: float  # summed over the steps
    traced_seconds: float  # summed over the steps


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """One placement's predicted and traced step, taken apart.

    step x devices = compute + dispatch, predicted and traced: a device that runs no op waits,
    moves tensors, or is in between ops.

    Attributes:
      name: of the placement.
      compute: while an op of the graph runs.
      transfer: from a tensor's sending until it is there, summed over transfers; they overlap
        with each other and with ops.
      num_transfers: tensors that are moved, as predicted.
      num_traced_transfers: tensors that the runtime moved.
      dispatch: the time in which no op of the graph runs on a device.
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
    prepared: PreparedModel, name: str, placed: Simulated, step_seconds: tuple[float, float]
) -> TracedStep | Infeasible:
    """Traces a placement and lays it beside its prediction.

    Args:
      step_seconds: predicted and measured.
    """
    graph_def, first = prepared.opened_on(placed.device_of_op), prepared.problem.device_names[0]
    executed = execute(graph_def, prepared.opened_run(), prepared.cluster, first, TRACED_STEPS)
    if isinstance(executed, Infeasible):
        return executed
    traces = executed.steady_traces()
    ops = traced_op_seconds(prepared, executed.nodes, traces)
    return taken_apart(name, placed, step_seconds, ops, traces)


def taken_apart(
    name: str,
    placed: Simulated,
    step_seconds: tuple[float, float],
    op_seconds: FloatArray,
    traces: Sequence[StepTrace],
) -> TracedStep:
    """Compute, dispatch and transfers of a step, predicted and traced.

    Args:
      step_seconds: predicted and measured.
      op_seconds: f8[N] traced.
      traces: of several steps; their medians count.
    """
    moved = placed.known_schedule().transfers
    compute = Amount(
        float(_op_seconds_at(placed.problem, placed.device_of_op).sum()), float(op_seconds.sum())
    )
    predicted, measured = (seconds * placed.problem.num_devices for seconds in step_seconds)
    took = [(trace.end_seconds - trace.start_seconds)[trace.is_transfer].sum() for trace in traces]
    return TracedStep(
        name=name,
        compute=compute,
        transfer=Amount(float((moved.arrival - moved.start).sum()), float(np.median(took))),
        num_transfers=placed.num_transfers,
        num_traced_transfers=int(np.median([trace.is_transfer.sum() for trace in traces])),
        dispatch=Amount(predicted - compute.predicted_seconds, measured - compute.traced_seconds),
        op_seconds=op_seconds,
    )


def errors_by_op_type(
    problem: Problem, steps: Sequence[tuple[IntArray, TracedStep]]
) -> list[OpTypeError]:
    """Predicted and traced seconds of each op type, summed over steps, the largest error first.

    Fused ops' time is shared among the ops of the graph that they stand for, as in the costs.

    Args:
      steps: (placement i4[N], its step taken apart) each.
    """
    predicted, traced = np.zeros(problem.num_ops), np.zeros(problem.num_ops)
    for device_of_op, step in steps:
        predicted += _op_seconds_at(problem, device_of_op)
        traced += step.op_seconds
    rows = [OpTypeError(*row) for row in problem.graph.by_type(predicted, traced)]
    return sorted(rows, key=lambda row: -abs(row.predicted_seconds - row.traced_seconds))


def traced_op_seconds(
    prepared: PreparedModel, nodes: Sequence[ExecutedNode], traces: Sequence[StepTrace]
) -> FloatArray:
    """f8[N]: median seconds of each op; what was fused into another has its share.

    Args:
      nodes: what TensorFlow ran in their place.
    """
    steps = [trace.seconds_of_ops().items() for trace in traces]
    by_op = [by_key((op, took) for (op, _), took in step) for step in steps]
    rows = by_key((op, sum(took)) for step in by_op for op, took in step.items())
    medians = {op: float(np.median(values)) for op, values in rows.items()}
    op_of_node = prepared.built.op_of_node
    cheapest = prepared.problem.op_seconds.min(axis=1)[op_of_node]
    of_node = attribute(prepared.flat.graph_def.node, nodes).shared(medians, cheapest)
    return np.bincount(op_of_node, of_node, prepared.problem.num_ops).astype(np.float64)


def _op_seconds_at(problem: Problem, device_of_op: IntArray) -> FloatArray:
    """f8[N]: predicted seconds of each op where it lies."""
    return problem.op_seconds[np.arange(problem.num_ops), device_of_op]

"""What ran where and for how long: TensorFlow's own step traces, as arrays.

A trace tells the truth about devices: soft placement and Grappler may have changed what the
graph asks for. Grappler also folds and fuses ops, which then are never seen; a trace without
rewriting prices single ops, one with it tells what a training step does.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.cluster import Cluster
from graphs.op_graph import FloatArray, LongArray
from graphs.placement import Infeasible
from tfplace.evaluation.device_name import DeviceSpelling
from tfplace.evaluation.measuring_process import MeasuringProcess
from tfplace.evaluation.training_run import (
    PrepareRequest,
    Request,
    SavedModelRun,
    StepRequest,
    TraceRequest,
    TrainingRun,
)

_TRANSFER_TYPES = frozenset({"RecvTensor", "_Send", "_Recv", "_HostSend", "_HostRecv", "MEMCPY"})
_RUNTIME_OPS = frozenset({"_SOURCE", "_SINK"})
_OP_TYPE = re.compile(r" = (\w+)\(")
_EDGE = re.compile(r"(edge_\S+) from ")
_STREAM = re.compile(r"(.*/device:GPU:\d+)/(stream:all|memcpy)$")


@dataclasses.dataclass(frozen=True)
class StepTrace:
    """One traced step; K rows, one per run of an op, in the order of their starts.

    Attributes:
      op_names: [K] names in the graph; a transfer is named by its edge.
      op_types: [K] as run: `_MklMatMul` where the graph says MatMul; "" where not told.
      devices: [K] spelled as the cluster does.
      start_seconds, end_seconds: f8[K] from the step's first start.
      output_bytes: i8[K] sum of the outputs' buffers.
      is_transfer: bool[K] rows that move a tensor; no ops of the graph.
    """

    op_names: Sequence[str]
    op_types: Sequence[str]
    devices: Sequence[str]
    start_seconds: FloatArray
    end_seconds: FloatArray
    output_bytes: LongArray
    is_transfer: np.ndarray


@dataclasses.dataclass(frozen=True)
class TraceConfig:
    """How to trace.

    Attributes:
      num_traces: steps to trace, >= 1.
      warmup_steps: steps before that.
      rewrite: whether Grappler may rewrite the graph; False prices single ops.
      timeout_seconds: the longest that one step may take.
      prepare_timeout_seconds: the longest that import, initialization and first step may take.
      seed: of the values of variables that nothing initialises.
      num_logical_cpus, soft_placement: see RuntimeConfig.
    """

    num_traces: int = 5
    warmup_steps: int = 2
    rewrite: bool = True
    timeout_seconds: float = 120.0
    prepare_timeout_seconds: float = 300.0
    seed: int = 0
    num_logical_cpus: int = 1
    soft_placement: bool = False


@dataclasses.dataclass(frozen=True)
class DeviceUse:
    """Attributes: num_ops: different ops that ran there; seconds: their time in one step."""

    num_ops: int
    seconds: float


def trace_run(
    graph_def: Any, run: TrainingRun | SavedModelRun, cluster: Cluster, config: TraceConfig
) -> list[StepTrace] | Infeasible:
    """Traces steps of a graph, or of a SavedModel that is loaded again, in a child process.

    Args:
      graph_def: GraphDef with devices; None where `run` is a SavedModelRun.
      run: what one step is.
      cluster: where the devices are; workers without addresses are started and ended here.
      config: how many, and how.

    Returns:
      [num_traces] traces, or why the run can't be made.
    """
    serialized = None if graph_def is None else graph_def.SerializeToString()
    prepare = PrepareRequest(
        0, serialized, run, through="session", rewrite=config.rewrite, seed=config.seed
    )
    steps = max(config.warmup_steps, 1) * config.timeout_seconds
    requests: list[tuple[Request, float]] = [
        (prepare, config.prepare_timeout_seconds),
        (StepRequest(0, config.warmup_steps), steps),
        (TraceRequest(0, config.num_traces), config.num_traces * config.timeout_seconds),
    ]
    answer: Any = None
    with MeasuringProcess(cluster, config.num_logical_cpus, config.soft_placement) as process:
        for request, timeout_seconds in requests:
            answer = process.request(request, timeout_seconds)
            if isinstance(answer, Infeasible):
                return answer
    traces: list[StepTrace] = answer
    return traces


def parse_step_stats(step_stats: Any, device_names: Sequence[str]) -> StepTrace:
    """Rows of a StepStats proto, each run of an op once.

    A GPU op has a row where the host launches it and rows of its kernels on "stream:all": the
    kernels' time counts, from the first one's start. Other stream rows repeat these.

    Args:
      step_stats: tensorflow.StepStats.
      device_names: [D] the cluster's spelling of devices.
    """
    spelling = DeviceSpelling(device_names)
    rows: list[_Row] = []
    kernels: dict[tuple[str, str], list[_Row]] = {}
    for device in step_stats.dev_stats:
        stream = _STREAM.search(device.device)
        if stream is None and ("/stream:" in device.device or "/memcpy" in device.device):
            continue
        name = spelling(stream.group(1) if stream else device.device)
        parsed = [_row(node, name) for node in device.node_stats]
        if stream is None:
            rows += [row for row in parsed if row.op not in _RUNTIME_OPS]
        elif stream.group(2) == "memcpy":
            rows += [dataclasses.replace(row, type="MEMCPY") for row in parsed]
        else:
            for row in parsed:
                kernels.setdefault((row.op.partition(":")[0], name), []).append(row)
    rows = [row for row in rows if (row.op, row.device) not in kernels]
    rows += [_sum_of_kernels(op, device, parts) for (op, device), parts in kernels.items()]
    return _trace_of(sorted(rows, key=lambda row: (row.start_ns, row.op)))


def median_op_seconds(traces: Sequence[StepTrace]) -> dict[str, dict[str, float]]:
    """{op: {device: seconds}}: an op's time in one step, median over the traces that saw it."""
    seen: dict[tuple[str, str], list[float]] = {}
    for trace in traces:
        for key, seconds in _op_seconds(trace).items():
            seen.setdefault(key, []).append(seconds)
    medians: dict[str, dict[str, float]] = {}
    for (op, device), seconds_list in seen.items():
        medians.setdefault(op, {})[device] = float(np.median(seconds_list))
    return medians


def never_seen(traces: Sequence[StepTrace], op_names: Sequence[str]) -> list[str]:
    """Ops of the graph that no trace shows: folded, fused away, or not needed for the fetches."""
    seen = {op for trace in traces for op, _ in _op_seconds(trace)}
    return [name for name in op_names if name not in seen]


def coverage(traces: Sequence[StepTrace], op_names: Sequence[str]) -> float:
    """Share of the ops that some trace shows, 0 to 1; 1 where there are no ops."""
    return 1.0 - len(never_seen(traces, op_names)) / len(op_names) if op_names else 1.0


def devices_used(
    traces: Sequence[StepTrace], op_names: Collection[str] | None = None
) -> dict[str, DeviceUse]:
    """{device: use}: where the ops of the graph ran.

    Args:
      traces: of one run.
      op_names: the graph's ops, to leave out what the runtime adds (arguments, constants that
        carry control edges); None counts all.
    """
    ops: dict[str, set[str]] = {}
    seconds: dict[str, list[float]] = {}
    for trace in traces:
        of_step: dict[str, float] = {}
        for (op, device), op_time in _op_seconds(trace).items():
            if op_names is None or op in op_names:
                ops.setdefault(device, set()).add(op)
                of_step[device] = of_step.get(device, 0.0) + op_time
        for device, total in of_step.items():
            seconds.setdefault(device, []).append(total)
    return {d: DeviceUse(len(ops[d]), float(np.median(seconds[d]))) for d in sorted(ops)}


@dataclasses.dataclass(frozen=True)
class _Row:
    """Times in whole nanoseconds: seconds since 1970 as f8 would be a fifth of a µs coarse."""

    op: str
    type: str
    device: str
    start_ns: int
    end_ns: int
    output_bytes: int


def _row(node: Any, device: str) -> _Row:
    """One NodeExecStats. RecvTensor rows have microseconds only, and no compute interval."""
    if node.all_start_nanos:
        start = node.all_start_nanos
        first, last = node.op_start_rel_nanos, node.op_end_rel_nanos
        whole = node.all_end_rel_nanos
    else:
        start = 1000 * node.all_start_micros
        first, last = 1000 * node.op_start_rel_micros, 1000 * node.op_end_rel_micros
        whole = 1000 * node.all_end_rel_micros
    if last == 0:
        first, last = 0, whole
    output_bytes = sum(
        out.tensor_description.allocation_description.requested_bytes for out in node.output
    )
    op, kind = node.node_name, ""
    if op == "RecvTensor":
        edge = _EDGE.search(node.timeline_label)
        op, kind = (edge.group(1) if edge else op), "RecvTensor"
    elif told := _OP_TYPE.search(node.timeline_label):
        kind = told.group(1)
    return _Row(op, kind, device, start + first, start + last, output_bytes)


def _sum_of_kernels(op: str, device: str, parts: Sequence[_Row]) -> _Row:
    start = min(row.start_ns for row in parts)
    busy = sum(row.end_ns - row.start_ns for row in parts)
    kind = parts[0].op.partition(":")[2]
    return _Row(op, kind, device, start, start + busy, max(row.output_bytes for row in parts))


def _trace_of(rows: Sequence[_Row]) -> StepTrace:
    first = rows[0].start_ns if rows else 0
    return StepTrace(
        tuple(row.op for row in rows),
        tuple(row.type for row in rows),
        tuple(row.device for row in rows),
        1e-9 * np.array([row.start_ns - first for row in rows], dtype=np.float64),
        1e-9 * np.array([row.end_ns - first for row in rows], dtype=np.float64),
        np.array([row.output_bytes for row in rows], dtype=np.int64),
        np.array([row.type in _TRANSFER_TYPES for row in rows], dtype=bool),
    )


def _op_seconds(trace: StepTrace) -> Mapping[tuple[str, str], float]:
    """{(op, device): seconds} of one step; a loop's iterations add up."""
    total: dict[tuple[str, str], float] = {}
    seconds = trace.end_seconds - trace.start_seconds
    rows = zip(trace.op_names, trace.devices, seconds, trace.is_transfer, strict=True)
    for op, device, op_time, is_transfer in rows:
        if not is_transfer:
            total[op, device] = total.get((op, device), 0.0) + float(op_time)
    return total

"""TensorFlow's record of one traced step (a StepStats proto) as arrays.

What its GPU tracer writes beside the host's rows has the number of the *physical* GPU
(docs/tensorflow_facts.md). An op has its host row, which is its launch, on the *logical* device, so
that tells whose a kernel is where one GPU is split, or where several tasks each have a GPU 0.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.op_graph import FloatArray
from graphs.protos import Message, NodeDef
from tfplace.measurement.device_name import DeviceSpelling

_TRANSFER_TYPES = frozenset({"RecvTensor", "_Send", "_Recv", "_HostSend", "_HostRecv", "MEMCPY"})
_RUNTIME_OPS = frozenset({"_SOURCE", "_SINK"})
_OP_TYPE = re.compile(r" = (\w+)\(")
_EDGE = re.compile(r"(edge_\S+) from ")
_HARDWARE = re.compile(r"(.*/(?:device:)?GPU:\d+)/(.+)$", re.IGNORECASE)
_OF_OP = re.compile(r"([^:]+):([\w.>]+)(?::MEMCPY\w+)?")
_WITHIN_GPU = re.compile(r"MemcpyD(?:2|to)D", re.IGNORECASE)
_HOST_TRACER = "/host:"


@dataclasses.dataclass(frozen=True)
class StepTrace:
    """One traced step; K rows, one per run of an op, in the order of their starts.

    Attributes:
      op_names: [K] names in the graph; a transfer is named by its edge.
      op_types: [K] as run: `_MklMatMul` where the graph says MatMul; "" where not told.
      devices: [K] spelled as the cluster does.
      start_seconds: f8[K] from the step's first start.
      end_seconds: f8[K] likewise.
      is_transfer: bool[K] rows that move a tensor; no ops of the graph.
    """

    op_names: Sequence[str]
    op_types: Sequence[str]
    devices: Sequence[str]
    start_seconds: FloatArray
    end_seconds: FloatArray
    is_transfer: np.ndarray

    def seconds_of_ops(self) -> dict[tuple[str, str], float]:
        """{(op, device): seconds of all its rows}; what moves a tensor is no op."""
        durations = (self.end_seconds - self.start_seconds).tolist()
        rows = zip(self.op_names, self.devices, durations, self.is_transfer, strict=True)
        found: dict[tuple[str, str], float] = {}
        for op, device, duration, is_transfer in rows:
            if not is_transfer:
                found[op, device] = found.get((op, device), 0.0) + duration
        return found


def parse_step_stats(step_stats: Message, device_names: Sequence[str]) -> StepTrace:
    """Rows of a StepStats proto, each run of an op once.

    A GPU op's time is its kernels' and its copies' within the GPU, from the first one's start;
    its launch on the host does not count then. An op without kernels keeps its host row. One that
    ran several times, in a loop, has a row for each kernel.

    Args:
      step_stats: tensorflow.StepStats.
      device_names: [D] the cluster's spelling of devices.
    """
    spelling = DeviceSpelling(device_names)
    host: list[_Row] = []
    on_gpu: list[_Row] = []
    for device in step_stats.dev_stats:
        hardware = _HARDWARE.search(device.device)
        if hardware is None and not device.device.startswith(_HOST_TRACER):
            name = spelling(device.device)
            rows = (_row(node, name) for node in device.node_stats)
            host += [row for row in rows if row.op not in _RUNTIME_OPS]
        elif hardware is not None and hardware.group(2) in ("stream:all", "memcpy"):
            name = spelling(hardware.group(1))
            is_copy = hardware.group(2) == "memcpy"
            on_gpu += [_hardware_row(node, name, is_copy) for node in device.node_stats]
    return _trace_of(sorted(_joined(host, on_gpu), key=lambda row: (row.start_ns, row.op)))


@dataclasses.dataclass(frozen=True)
class _Row:
    """Times in whole nanoseconds: seconds since 1970 as f8 would be a fifth of a µs coarse."""

    op: str
    type: str
    device: str
    start_ns: int
    end_ns: int


def _joined(host: Sequence[_Row], on_gpu: Sequence[_Row]) -> list[_Row]:
    """Host rows with those of ops that ran on a GPU replaced by what ran there."""
    devices = by_key((row.op, row.device) for row in host if "GPU:" in row.device)
    # {op: the GPU that launched it}, as far as there is one only.
    launched_on = {op: gpus[0] for op, gpus in devices.items() if len({*gpus}) == 1}
    parts: dict[tuple[str, str], list[_Row]] = {}
    rows: list[_Row] = []
    for row in on_gpu:
        device = launched_on.get(row.op, row.device)
        if row.type in _TRANSFER_TYPES:
            rows.append(dataclasses.replace(row, type="MEMCPY"))
        else:
            parts.setdefault((row.op, device), []).append(row)
    type_of = {(row.op, row.device): row.type for row in host}
    rows += [row for row in host if (row.op, row.device) not in parts]
    runs = collections.Counter((row.op, row.device) for row in host)
    for key, rows_of_op in parts.items():
        # Which kernels of an op in a loop belong to one run isn't told.
        each = [[row] for row in rows_of_op] if runs[key] > 1 else [rows_of_op]
        rows += [_sum_of_parts(key, type_of.get(key, ""), some) for some in each]
    return rows


def _sum_of_parts(key: tuple[str, str], kind: str, parts: Sequence[_Row]) -> _Row:
    start = min(row.start_ns for row in parts)
    busy = sum(row.end_ns - row.start_ns for row in parts)
    return _Row(key[0], kind or parts[0].type, key[1], start, start + busy)


def _hardware_row(node: NodeDef, device: str, is_copy: bool) -> _Row:
    """A kernel or copy, named "op:Type" (or by its own symbol where no op is known).

    A copy is a transfer, unless it stays within the GPU and an op other than a send made it.
    """
    row = _row(node, device)
    told = _OF_OP.fullmatch(node.node_name)
    op, kind = told.groups() if told else (node.node_name, "")
    of_no_op = kind in _TRANSFER_TYPES or kind[:6] in ("", "MEMCPY")
    stays = _WITHIN_GPU.search(f"{node.node_name} {node.timeline_label}") is not None
    if is_copy and (of_no_op or not stays):
        kind = "MEMCPY"
    return dataclasses.replace(row, op=op, type=kind)


def _row(node: NodeDef, device: str) -> _Row:
    """One NodeExecStats. RecvTensor and GPU rows have microseconds only."""
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
    op, kind = node.node_name, ""
    if op == "RecvTensor":
        edge = _EDGE.search(node.timeline_label)
        op, kind = (edge.group(1) if edge else op), "RecvTensor"
    elif told := _OP_TYPE.search(node.timeline_label):
        kind = told.group(1)
    return _Row(op, kind, device, start + first, start + last)


def _trace_of(rows: Sequence[_Row]) -> StepTrace:
    first = rows[0].start_ns if rows else 0
    return StepTrace(
        tuple(row.op for row in rows),
        tuple(row.type for row in rows),
        tuple(row.device for row in rows),
        1e-9 * np.array([row.start_ns - first for row in rows], dtype=np.float64),
        1e-9 * np.array([row.end_ns - first for row in rows], dtype=np.float64),
        np.array([row.type in _TRANSFER_TYPES for row in rows], dtype=bool),
    )

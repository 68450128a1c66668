"""What a step spends its time and its links on: heaviest ops, largest transfers."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class HeavyOp:
    """An op that runs long.

    Attributes:
      name: of the op.
      op_type: as TensorFlow calls it.
      device: where it lies.
      seconds: how long it runs there.
      fastest_seconds: how long it would run on the device that is fastest for it.
    """

    name: str
    op_type: str
    device: int
    seconds: float
    fastest_seconds: float


@dataclasses.dataclass(frozen=True)
class HeavyType:
    """All ops of one type.

    Attributes:
      op_type: as TensorFlow calls it.
      num_ops: how many there are.
      seconds: how long they run, each where it lies.
    """

    op_type: str
    num_ops: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class LargeTransfer:
    """A tensor that travels.

    Attributes:
      tensor: "op:i"; "^op" for a control edge.
      source: the device that it leaves.
      target: the device that it goes to.
      bytes: what is moved.
      seconds: from its start to its arrival.
      queued_seconds: how long it waited for its link before.
    """

    tensor: str
    source: int
    target: int
    bytes: int
    seconds: float
    queued_seconds: float


def heaviest_ops(problem: Problem, schedule: Schedule, count: int) -> list[HeavyOp]:
    """The ops that run longest, the longest first."""
    seconds = schedule.op_end - schedule.op_start
    fastest = problem.op_seconds.min(axis=1) if problem.num_ops else seconds
    return [
        HeavyOp(
            str(problem.graph.op_names[op]),
            str(problem.graph.op_types[op]),
            int(schedule.device_of_op[op]),
            float(seconds[op]),
            float(fastest[op]),
        )
        for op in np.argsort(-seconds, kind="stable")[:count].tolist()
        if seconds[op] > 0.0
    ]


def heaviest_types(problem: Problem, schedule: Schedule, count: int) -> list[HeavyType]:
    """The op types that take most of all devices' time together, the dearest first."""
    types, number, num_ops = np.unique(
        np.asarray(problem.graph.op_types, dtype=str), return_inverse=True, return_counts=True
    )
    seconds = np.bincount(number, schedule.op_end - schedule.op_start, len(types))
    return [
        HeavyType(str(types[kind]), int(num_ops[kind]), float(seconds[kind]))
        for kind in np.argsort(-seconds, kind="stable")[:count].tolist()
        if seconds[kind] > 0.0
    ]


def largest_transfers(problem: Problem, schedule: Schedule, count: int) -> list[LargeTransfer]:
    """The transfers of most bytes, the largest first."""
    moved = schedule.transfers
    made = schedule.op_end[problem.graph.tensor_producer[moved.tensor]]
    return [
        LargeTransfer(
            tensor_name(problem, int(moved.tensor[index])),
            int(moved.source[index]),
            int(moved.target[index]),
            int(moved.bytes[index]),
            float(moved.arrival[index] - moved.start[index]),
            float(moved.start[index] - made[index]),
        )
        for index in np.argsort(-moved.bytes, kind="stable")[:count].tolist()
        if moved.bytes[index] > 0
    ]


def tensor_name(problem: Problem, tensor: int) -> str:
    """ "op:0", or "^op" for the control tensor."""
    graph = problem.graph
    name = str(graph.op_names[graph.tensor_producer[tensor]])
    output = int(graph.tensor_output[tensor])
    return f"^{name}" if output < 0 else f"{name}:{output}"

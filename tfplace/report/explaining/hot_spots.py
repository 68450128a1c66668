"""What a step spends its time and its links on: heaviest ops, largest transfers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule


def heaviest_ops(schedule: Schedule, count: int) -> list[int]:
    """The ops that run longest, the longest first; none that takes no time."""
    return _largest(schedule.op_end - schedule.op_start, count)


def heaviest_types(
    problem: Problem, schedule: Schedule, count: int
) -> list[tuple[str, int, float]]:
    """(op type, number of ops, seconds that they run where they lie), the most seconds first."""
    types, type_of_op, num_ops = np.unique(
        np.asarray(problem.graph.op_types, dtype=str), return_inverse=True, return_counts=True
    )
    seconds = np.bincount(type_of_op, schedule.op_end - schedule.op_start, len(types))
    return [(str(types[k]), int(num_ops[k]), float(seconds[k])) for k in _largest(seconds, count)]


def largest_transfers(schedule: Schedule, count: int) -> list[int]:
    """Indices of the transfers of most bytes, the largest first; none of no bytes."""
    return _largest(schedule.transfers.bytes, count)


def queued_seconds(problem: Problem, schedule: Schedule) -> FloatArray:
    """f8[X]: how long each transfer waited for its link after its tensor was made."""
    moved = schedule.transfers
    return moved.start - schedule.op_end[problem.graph.tensor_producer[moved.tensor]]


def tensor_name(problem: Problem, tensor: int) -> str:
    """ "op:0", or "^op" for the control tensor."""
    graph = problem.graph
    name = str(graph.op_names[graph.tensor_producer[tensor]])
    output = int(graph.tensor_output[tensor])
    return f"^{name}" if output < 0 else f"{name}:{output}"


def _largest(values: Any, count: int) -> list[int]:
    order = np.argsort(-values, kind="stable")[:count].tolist()
    return [index for index in order if values[index] > 0]

"""When shards one after another would fit where the whole batch at once does not."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.grouping.copies import is_split
from tfplace.units_text import bytes_text

COUNTS = (2, 4, 8, 16, 32)
_UPDATES = ("ResourceApply", "ResourceSparseApply", "AssignSubVariableOp", "AssignAddVariableOp")


def shards_that_fit(
    problem: Problem, device_of_op: IntArray, device: int, peak_bytes: float
) -> str:
    """What to ask for, with its figures; empty where it is no training step, or would not help.

    Variables stay, and so does a gradient of each, into which all shards are added; the rest is
    taken to shrink with the shard.

    Args:
      problem: an unsplit step.
      device_of_op: i4[N] a placement that doesn't fit.
      device: the one that lacks most.
      peak_bytes: what it would hold.
    """
    graph = problem.graph
    here = device_of_op == device
    variables = float(graph.op_persistent_bytes[here].sum())
    gradients = _gradient_bytes(problem, here)
    if is_split(problem) or not gradients:
        return ""
    rest, usable = peak_bytes - variables, float(problem.usable_bytes()[device])
    for count in COUNTS:
        needed = variables + gradients + rest / count
        if needed <= min(usable, peak_bytes):
            return (
                f"--shards={count} --order=edges, which works on {count} parts of the batch one "
                f"after another (about {bytes_text(needed)}: {bytes_text(variables)} of variables, "
                f"{bytes_text(gradients)} of gradients, {bytes_text(rest / count)} of one part)"
            )
    return ""


def _gradient_bytes(problem: Problem, here: np.ndarray) -> float:
    """The largest thing that each update on a device reads, all together."""
    graph = problem.graph
    is_update = np.array([kind.startswith(_UPDATES) for kind in graph.op_types]) & here
    largest = np.zeros(graph.num_ops)
    np.maximum.at(largest, graph.use_op, graph.tensor_bytes[graph.use_tensor])
    return float(largest[is_update].sum())

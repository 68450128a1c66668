"""When shards one after another would fit where the whole batch at once does not."""

from collections.abc import Sequence

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

    Args:
      problem: an unsplit step.
      device_of_op: i4[N] a placement that doesn't fit.
      device: the one that lacks most.
      peak_bytes: what it would hold.
    """
    kept = _kept_bytes(problem, device_of_op, device)
    count = _least_count(problem, kept, device, peak_bytes)
    if count is None:
        return ""
    variables, gradients = kept
    part = (peak_bytes - variables) / count
    return (
        f"--shards={count} --order=edges, which works on {count} parts of the batch one after "
        f"another (about {bytes_text(variables + gradients + part)}: {bytes_text(variables)} of "
        f"variables, {bytes_text(gradients)} of gradients, {bytes_text(part)} of one part)"
    )


def counts_in_turn(
    problem: Problem, device_of_op: IntArray, peak_bytes: Sequence[int]
) -> Sequence[int]:
    """The numbers of shards, ascending, with which a placement may fit in order.

    Args:
      problem: an unsplit step.
      device_of_op: i4[N] a placement that doesn't fit.
      peak_bytes: i8[D] what each device would hold.
    """
    over = np.flatnonzero(np.array(peak_bytes) > problem.usable_bytes()).tolist()
    least = 0
    for device in over:
        kept = _kept_bytes(problem, device_of_op, device)
        count = _least_count(problem, kept, device, float(peak_bytes[device]))
        if count is None:
            return ()
        least = max(least, count)
    return [count for count in COUNTS if count >= least]


def _kept_bytes(problem: Problem, device_of_op: IntArray, device: int) -> tuple[float, float]:
    """What a device holds however many shards there are: variables, and a gradient of each."""
    here = device_of_op == device
    variables = float(problem.graph.op_persistent_bytes[here].sum())
    return variables, _gradient_bytes(problem, here)


def _least_count(
    problem: Problem, kept: tuple[float, float], device: int, peak_bytes: float
) -> int | None:
    """The least number that would fit; None where it is no training step, or none would.

    Variables stay, and so does a gradient of each, into which all shards are added; the rest is
    taken to shrink with the shard.
    """
    variables, gradients = kept
    if is_split(problem) or not gradients:
        return None
    usable = min(float(problem.usable_bytes()[device]), peak_bytes)
    rest = peak_bytes - variables
    fitting = (count for count in COUNTS if variables + gradients + rest / count <= usable)
    return next(fitting, None)


def _gradient_bytes(problem: Problem, here: np.ndarray) -> float:
    """The largest thing that each update on a device reads, all together."""
    graph = problem.graph
    is_update = np.array([kind.startswith(_UPDATES) for kind in graph.op_types]) & here
    largest = np.zeros(graph.num_ops)
    np.maximum.at(largest, graph.use_op, graph.tensor_bytes[graph.use_tensor])
    return float(largest[is_update].sum())

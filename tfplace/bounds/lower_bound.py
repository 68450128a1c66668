"""The step time that no placement can beat, under the rules of the contract, section 6.

The contract is `tfplace/docs/contract.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.bounds.enclosed_work import between, reversed_between
from tfplace.bounds.load_bound import Weights, best_weights, best_window, fits, work_of
from tfplace.bounds.path_bound import soonest_ends
from tfplace.bounds.relaxation import (
    DeviceClasses,
    backward_edges,
    device_classes,
    forward_edges,
)
from tfplace.grouping.quotient import colocation_units

# Sums in another order than the simulator's may come out higher by rounding.
ROUNDING = 1e-9

# So many weights of the work bound are tried on the windows.
NUM_WEIGHTS = 8


@dataclasses.dataclass(frozen=True)
class LowerBound:
    """What every placement takes at least.

    Attributes:
      seconds: of a step; inf where it is proven that no placement can run.
      argument: which of the bounds it is: "path", "work", "window", "optimum" or "infeasible".
    """

    seconds: float
    argument: str


def lower_bound_seconds(problem: Problem) -> float:
    """`lower_bound` in seconds only."""
    return lower_bound(problem).seconds


def lower_bound(problem: Problem) -> LowerBound:
    """The best of three bounds on the makespan of every feasible placement.

    Path: what waits for each other takes its time, on one device or with transfers between, and
    so does all that a part of the path encloses (stay_or_pay, between). Work: all ops have to fit
    on the devices, memory included (work). Window: ops that can't start early and leave much to
    do after them have to fit between (all three).
    """
    classes = device_classes(problem)
    if not problem.num_ops:
        return LowerBound(0.0, "path")
    if np.isinf(classes.seconds).all(axis=1).any():
        return LowerBound(float("inf"), "infeasible")
    unit = colocation_units(problem.graph).group_of_op
    op_bytes = problem.graph.op_persistent_bytes.astype(np.float64)
    all_work = work_of(classes, unit, op_bytes, np.ones(problem.num_ops, dtype=bool))
    if not fits(all_work):
        return LowerBound(float("inf"), "infeasible")
    work, weights = best_weights(all_work)
    weights = weights[:NUM_WEIGHTS]
    head, tail, path = heads_and_tails(problem, classes, weights)
    if np.isinf(path):
        return LowerBound(path, "infeasible")
    window, first, last = best_window(classes, head, tail, weights)
    inside = (head >= first) & (tail >= last)
    if window > 0.0 and inside.any():
        value, _ = best_weights(work_of(classes, unit, op_bytes, inside))
        window = max(window, first + last + value)
    bounds = ((path, "path"), (work, "work"), (window, "window"))
    seconds, argument = max(bounds, key=lambda bound: bound[0])
    return LowerBound(seconds * (1.0 - ROUNDING), argument)


def heads_and_tails(
    problem: Problem, classes: DeviceClasses, weights: Sequence[Weights]
) -> tuple[FloatArray, FloatArray, float]:
    """Least seconds before each op's start f8[N], after its end f8[N], and of any path with it."""
    seconds = classes.seconds
    group = problem.graph.colocation_group.astype(np.int64)
    edges = forward_edges(problem)
    chain = between(classes, edges, weights)
    end = soonest_ends(classes, edges, group, chain)
    reversed_classes = dataclasses.replace(classes, seconds=np.ascontiguousarray(seconds[::-1]))
    reversed_group = np.ascontiguousarray(group[::-1])
    chain = reversed_between(chain, problem.num_ops)
    rest = soonest_ends(reversed_classes, backward_edges(problem), reversed_group, chain)[::-1]
    own = np.where(np.isinf(seconds), 0.0, seconds)
    return (
        np.min(end - own, axis=1),
        np.min(rest - own, axis=1),
        float(np.min(end + rest - own, axis=1).max()),
    )

"""The step time that no placement can beat, under the rules of the contract, section 6."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, LongArray
from graphs.problem import Problem
from tfplace.bounds.enclosed_work import EnclosedWork, enclosed_work, reversed_in_time
from tfplace.bounds.load_bound import DualWeights, best_weights, load_of, may_fit, window_bound
from tfplace.bounds.relaxation import (
    DeviceClasses,
    Edges,
    Sweep,
    backward_edges,
    device_classes,
    forward_edges,
    new_sweep,
    soonest_elsewhere,
)
from tfplace.bounds.staying import Ancestors, new_ancestors, start_after_staying
from tfplace.bounds.travel_bound import sharing_of, travel_bound

# Sums in another order than the simulator's may come out higher by rounding.
ROUNDING = 1e-9

# So many weights of the load bound are tried on windows and on what a chain encloses.
NUM_WEIGHTS = 8


def lower_bound_seconds(problem: Problem) -> float:
    """The best of four bounds on the makespan of every placement that fits.

    Path: what waits for each other takes its time, on one device or with transfers between
    (path_bound). Load: all ops have to fit on the devices (load_bound). Window: ops that can't
    start early and leave much to do after them have to fit between (window_bound). Travel: what
    no device can do in time is spread, and what it shares is sent (travel_bound).

    Returns:
      Seconds of a step; inf where it is proven that no placement can run.
    """
    classes = device_classes(problem)
    if not problem.num_ops:
        return 0.0
    everything = load_of(classes, problem.graph, np.ones(problem.num_ops, dtype=bool))
    if np.isinf(classes.seconds).all(axis=1).any() or not may_fit(everything):
        return float("inf")
    load, weights = best_weights(everything)
    weights = weights[:NUM_WEIGHTS]
    head, tail, path = heads_and_tails(problem, classes, weights)
    if np.isinf(path):
        return path
    window = window_bound(classes, problem.graph, head, tail, weights)
    travel = travel_bound(classes, problem, sharing_of(problem), head, tail)
    return max(path, load, window, travel) * (1.0 - ROUNDING)


def heads_and_tails(
    problem: Problem, classes: DeviceClasses, weights: Sequence[DualWeights]
) -> tuple[FloatArray, FloatArray, float]:
    """The path bound of each op, forward and backward in time.

    Returns:
      Least seconds before each op's start f8[N], least seconds after its end f8[N], and the path
      bound: the greatest of both with the op between.
    """
    seconds = classes.seconds
    group = problem.graph.colocation_group.astype(np.int64)
    edges = forward_edges(problem)
    enclosed = enclosed_work(classes, edges, weights)
    end = soonest_ends(classes, edges, group, enclosed)
    reversed_classes = dataclasses.replace(classes, seconds=np.ascontiguousarray(seconds[::-1]))
    reversed_group = np.ascontiguousarray(group[::-1])
    enclosed = reversed_in_time(enclosed, problem.num_ops)
    rest = soonest_ends(reversed_classes, backward_edges(problem), reversed_group, enclosed)[::-1]
    own = np.where(np.isinf(seconds), 0.0, seconds)
    return (
        np.min(end - own, axis=1),
        np.min(rest - own, axis=1),
        float(np.min(end + rest - own, axis=1).max()),
    )


# How soon each op can end (docs/bounds.md, Path): ops are visited in graph order.


def soonest_ends(
    classes: DeviceClasses, edges: Edges, group: LongArray, enclosed: EnclosedWork
) -> FloatArray:
    """f8[N, K]: no schedule of any placement ends op n on a device of class k earlier.

    Args:
      edges: forward ones; with backward ones go reversed rows of seconds and groups.
      group: i8[N] colocation groups, -1 for none.
      enclosed: of a chain of these edges.

    Returns:
      Inf where the op may not lie, or nothing can make it run there.
    """
    sweep = new_sweep(classes, edges, group)
    place = np.full(len(group), -1, dtype=np.int64)
    place[enclosed.chain] = np.arange(len(enclosed.chain))
    _visit_all(sweep, new_ancestors(len(group)), place, enclosed.chain, enclosed.seconds)
    return sweep.end


@compiled
def _visit_all(
    sweep: Sweep, ancestors: Ancestors, place: LongArray, chain: LongArray, enclosed: FloatArray
) -> None:
    """Fills sweep.end and sweep.soonest op by op."""
    num_ops, num_classes = sweep.seconds.shape
    for op in range(num_ops):
        after_chain = 0.0
        for earlier in range(place[op]):  # argument 3; no turn for an op outside of the chain
            ended = sweep.soonest[chain[earlier]]
            after_chain = max(after_chain, ended + enclosed[earlier, place[op]])
        for kind in range(num_classes):
            if sweep.seconds[op, kind] == np.inf:
                continue
            start = max(after_chain, _start_after_inputs(sweep, op, kind))
            if start > 0.0:
                start = start_after_staying(sweep, ancestors, op, kind, start)
            end = start + sweep.seconds[op, kind]
            sweep.end[op, kind] = end
            sweep.soonest[op] = min(sweep.soonest[op], end)


@compiled_part
def _start_after_inputs(sweep: Sweep, op: int, kind: int) -> float:
    """Argument 1."""
    start = 0.0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        moved = soonest_elsewhere(sweep, source, kind) + sweep.cost[edge]
        start = max(start, min(sweep.end[source, kind], moved))
    return start

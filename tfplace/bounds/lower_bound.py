"""The step time that no placement can beat, under the rules of the contract, section 6."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.bounds.enclosed_work import enclosed_work, reversed_in_time
from tfplace.bounds.load_bound import DualWeights, best_weights, load_of, may_fit
from tfplace.bounds.network_bound import network_bound
from tfplace.bounds.path_bound import soonest_ends
from tfplace.bounds.relaxation import (
    DeviceClasses,
    backward_edges,
    device_classes,
    forward_edges,
)
from tfplace.bounds.step_roles import step_roles
from tfplace.bounds.travel_bound import sharing_of, travel_bound
from tfplace.bounds.window_bound import window_bound
from tfplace.grouping.copies import is_split

# Sums in another order than the simulator's may come out higher by rounding.
ROUNDING = 1e-9

# So many weights of the load bound are tried on windows and on what a chain encloses.
NUM_WEIGHTS = 8


def lower_bound_seconds(problem: Problem) -> float:
    """The best of five bounds on the makespan of every placement that fits.

    Path: what waits for each other takes its time, on one device or with transfers between
    (path_bound). Load: all ops have to fit on the devices (load_bound). Window: ops that can't
    start early and leave much to do after them have to fit between (window_bound). Travel: what
    no device can do in time is spread, and what it shares is sent (travel_bound). Network: what
    other hosts do of a batch is sent to them first (network_bound).

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
    bound = max(path, load, window, travel)
    return max(bound, _network(problem, classes, head, bound)) * (1.0 - ROUNDING)


def _network(problem: Problem, classes: DeviceClasses, head: FloatArray, at_least: float) -> float:
    """The network bound of a split step."""
    if not is_split(problem):
        return 0.0
    roles = step_roles(problem)
    soonest = np.full(len(roles.roles), np.inf)
    known = roles.role_of_op >= 0
    ends = head + classes.seconds.min(axis=1)
    np.minimum.at(soonest, roles.role_of_op[known], ends[known])
    work = roles.least * np.where(roles.is_copy, roles.num_shards, 1)[:, None]
    return network_bound(roles, work, soonest, at_least)


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

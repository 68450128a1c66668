"""The step time that no placement can beat, into however many shards the step is split.

Between two numbers of shards that were read, everything is at least what one of them says. Let
c(b) be what a copy of an op takes on some device for b entries of the batch of B. Prices are

    c(b) nondecreasing, c(b) / b nonincreasing                                                  (*)

since they are a constant and a share of b, and no less than a launch. For every M in [m, m'] then,

* work: M copies take B c(k) / k together at least, where k = ceil(B / m) is the largest shard
  that m has, and so do units of several ops on the class of devices that is cheapest by any
  weights, whose least price obeys (*), too;
* path: a copy takes c(floor(B / m')) at least, m''s least shard; tensors likewise;
* what is whole takes what it takes at m, and so does what gathers tensors of several shards, which
  only grow in number.

So the bounds of this folder hold for one shard of m' and the whole ops of it (step_roles.py), with
the work of all M copies wherever the work of the step is counted, and the seconds of one copy
wherever ops wait for each other. The step as it came is bounded for itself, and more shards than
were read have no path through a shard at all. Every M > 1 splits the same ops: roles that a step
which was read does not have are left out. The least over all ranges of M holds for any M.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.bounds.load_bound import best_weights, load_of, may_fit
from tfplace.bounds.lower_bound import (
    NUM_WEIGHTS,
    ROUNDING,
    heads_and_tails,
    lower_bound_seconds,
)
from tfplace.bounds.network_bound import network_bound
from tfplace.bounds.relaxation import device_classes
from tfplace.bounds.step_roles import StepRoles, step_roles
from tfplace.bounds.travel_bound import travel_bound
from tfplace.bounds.window_bound import window_bound
from tfplace.grouping.copies import WHOLE


@dataclasses.dataclass(frozen=True)
class RangeBound:
    """What holds for some numbers of shards.

    Attributes:
      first, last: the least and the greatest of them.
      lower_bound_seconds: of every placement of a step of so many shards.
    """

    first: int
    last: int
    lower_bound_seconds: float


def any_split_bounds(steps: Mapping[int, Problem], batch: int) -> list[RangeBound]:
    """Bounds for all numbers of shards, up to a shard for each entry of the batch.

    None where only the unsplit step was read.

    Args:
      steps: {number of shards: the step's problem on one cluster}; 1 is among them.
      batch: entries of the batch, B.
    """
    split = [step_roles(steps[shards]) for shards in sorted(steps) if shards > 1]
    if not split:
        return []
    bounds = [RangeBound(1, 1, lower_bound_seconds(steps[1]))]
    if split[0].num_shards > 2:
        lower = _whole(steps[1], split[0])
        last = split[0].num_shards - 1
        bounds.append(RangeBound(2, last, _of_range(lower, split[0], split, batch)))
    for lower, upper in itertools.pairwise(split):
        seconds = _of_range(lower, upper, split, batch)
        bounds.append(RangeBound(lower.num_shards, upper.num_shards - 1, seconds))
    most = split[-1]
    seconds = _of_range(most, most if most.num_shards >= batch else None, split, batch)
    return [*bounds, RangeBound(most.num_shards, max(batch, most.num_shards), seconds)]


def least_of(bounds: Sequence[RangeBound]) -> float | None:
    """What holds for any number of shards; None where there are no bounds."""
    return min((each.lower_bound_seconds for each in bounds), default=None)


def _whole(problem: Problem, split: StepRoles) -> StepRoles:
    """The unsplit step with the roles of a split one; what gathers there is another op here."""
    gathered = {
        role[:2] for role, gathers in zip(split.roles, split.gathers, strict=True) if gathers
    }
    is_copy = {role[:2]: role[2] for role in split.roles if role[:2] not in gathered}
    own = step_roles(problem)
    roles = [
        (name, kind, is_copy[name, kind]) if (name, kind) in is_copy else (name, "", False)
        for name, kind, _ in own.roles
    ]
    return dataclasses.replace(own, roles=roles)


def _of_range(
    lower: StepRoles, upper: StepRoles | None, split: Sequence[StepRoles], batch: int
) -> float:
    """The bound for M from that of `lower` to that of `upper`; without, for all from there on."""
    base = upper or lower
    is_common = np.all([each.of_roles(base.roles) >= 0 for each in split], axis=0)
    path, work = _seconds(lower, upper, batch)
    path[~is_common], work[~is_common] = 0.0, 0.0
    graph = base.problem.graph
    if upper is None:  # a tensor of a copy may be as small as you like
        of_copy = base.is_copy[graph.tensor_producer]
        sizes = np.where(of_copy, 0, graph.tensor_bytes)
        graph = dataclasses.replace(graph, tensor_bytes=sizes)
    step = dataclasses.replace(base.problem, graph=graph, op_seconds=path)
    return _bound(step, work, base, lower)


def _seconds(
    lower: StepRoles, upper: StepRoles | None, batch: int
) -> tuple[FloatArray, FloatArray]:
    """f8[R, D], f8[R, D]: what one copy takes at least, and what all copies of an op take."""
    base = upper or lower
    own = base.problem.op_seconds
    here = lower.of_roles(base.roles)
    known = here >= 0
    grows = ~base.is_copy | base.gathers
    at_lower = np.where(known[:, None], lower.problem.op_seconds[here], _nothing(own))
    path = np.where(grows[:, None], np.minimum(at_lower, own), own)
    if upper is None:
        path = np.where(base.is_copy[:, None], _nothing(own), path)
    largest = -(-batch // lower.num_shards)
    of_all = np.where(known[:, None], batch / largest * lower.most[here], 2.0 * own)
    return path, np.where(grows[:, None], np.minimum(at_lower, own), of_all)


def _with_bytes_of(lower: StepRoles, base: StepRoles) -> StepRoles:
    """The base; its copies' tensors hold together what those of the least number of shards do.

    A tensor has a constant and a share of the entries, so that more copies hold no less.
    """
    if base is lower:
        return base
    graph, theirs = base.step.graph, lower.step.graph
    least: dict[tuple[int, int], int] = {}
    made_by = lower.role_of_op[theirs.tensor_producer].tolist()
    for *key, size in zip(
        made_by, theirs.tensor_output.tolist(), theirs.tensor_bytes.tolist(), strict=True
    ):
        least[*key] = min(size, least.get((*key,), size))
    role_there = lower.of_roles(base.roles)[base.role_of_op[graph.tensor_producer]].tolist()
    known = zip(role_there, graph.tensor_output.tolist(), strict=True)
    together = lower.num_shards * np.array([least.get(key, 0) for key in known], dtype=np.int64)
    of_copy = base.shard[graph.tensor_producer] != WHOLE
    sizes = np.minimum(graph.tensor_bytes, together // base.num_shards)
    graph = dataclasses.replace(graph, tensor_bytes=np.where(of_copy, sizes, graph.tensor_bytes))
    return dataclasses.replace(base, step=dataclasses.replace(base.step, graph=graph))


def _nothing(seconds: FloatArray) -> FloatArray:
    """No seconds where an op may lie."""
    return np.where(np.isfinite(seconds), 0.0, np.inf)


def _bound(step: Problem, work: FloatArray, roles: StepRoles, lower: StepRoles) -> float:
    """The bounds of lower_bound.py for a step of roles, whose copies' work is f8[R, D]."""
    counted = np.ones(step.num_ops, dtype=bool)
    classes = device_classes(dataclasses.replace(step, op_seconds=work))
    everything = load_of(classes, step.graph, counted)
    if np.isinf(classes.seconds).all(axis=1).any() or not may_fit(everything):
        return float("inf")
    load, weights = best_weights(everything)
    alone = device_classes(step)
    _, own_weights = best_weights(load_of(alone, step.graph, counted))
    head, tail, path = heads_and_tails(step, alone, own_weights[:NUM_WEIGHTS])
    if np.isinf(path):
        return path
    window = window_bound(classes, step.graph, head, tail, weights[:NUM_WEIGHTS])
    travel = travel_bound(classes, step, roles.sharing, head, tail)
    bound = float(max(path, load, window, travel))
    soonest = head + alone.seconds.min(axis=1)
    network = network_bound(_with_bytes_of(lower, roles), work, soonest, bound)
    return max(bound, network) * (1.0 - ROUNDING)

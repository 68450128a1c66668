"""The op graph as a few hundred groups at most, each on one device, for a picture of it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.evaluation.schedule import Schedule
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import colocation_units, group_sums, quotient

MAX_GROUPS = 160
"""As many boxes with legible names as one scrolls through."""
MAX_EDGES = 600


@dataclasses.dataclass(frozen=True)
class Group:
    """Ops that lie on one device.

    Attributes:
      label: the name scope that holds most of their time, or the op's name where there is one op.
      device: where they lie.
      num_ops: how many.
      seconds: that they run, all together.
      start: mean start of their ops, weighted by seconds.
    """

    label: str
    device: int
    num_ops: int
    seconds: float
    start: float


@dataclasses.dataclass(frozen=True)
class GroupEdge:
    """Tensors that one group makes and another uses; bytes count each use once."""

    source: int
    target: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class GroupGraph:
    """Attributes: groups: by start; edges: the dearest first; num_edges: with those left out."""

    groups: Sequence[Group]
    edges: Sequence[GroupEdge]
    num_edges: int


def group_graph(problem: Problem, schedule: Schedule, max_groups: int = MAX_GROUPS) -> GroupGraph:
    """Summarises a placed graph.

    A group is a unit that is placed as one (a colocation group, or a single op) where there are at
    most `max_groups`; else ops that exchange much, never of two devices (grouping/coarsen.py).
    """
    if not problem.num_ops:
        return GroupGraph([], [], 0)
    grouping = colocation_units(problem.graph)
    if grouping.num_groups > max_groups:
        placement = schedule.device_of_op
        grouping = coarsen(problem, max_groups, start=grouping, placement=placement)
    groups = _groups(problem, schedule, grouping)
    order = sorted(range(len(groups)), key=lambda g: groups[g].start)
    rank = np.argsort(np.array(order))
    sizes = quotient(
        problem.graph, grouping, problem.graph.tensor_bytes[problem.graph.use_tensor].astype(float)
    ).tocoo()
    edges = [
        GroupEdge(int(rank[source]), int(rank[target]), int(count))
        for source, target, count in zip(sizes.row, sizes.col, sizes.data, strict=True)
    ]
    edges.sort(key=lambda e: (groups[order[e.source]].device == groups[order[e.target]].device,
                              -e.bytes, e.source, e.target))  # fmt: skip
    return GroupGraph([groups[g] for g in order], edges[:MAX_EDGES], len(edges))


def _groups(problem: Problem, schedule: Schedule, grouping: Grouping) -> list[Group]:
    """[G] in the order of the grouping."""
    seconds = schedule.op_end - schedule.op_start
    weight = seconds + max(float(seconds.sum()), 1e-30) * 1e-9
    total: FloatArray = group_sums(weight, grouping)
    start: FloatArray = group_sums(weight * schedule.op_start, grouping) / total
    spent: FloatArray = group_sums(seconds, grouping)
    order = np.argsort(grouping.group_of_op, kind="stable")
    bounds = np.searchsorted(grouping.group_of_op[order], np.arange(grouping.num_groups + 1))
    groups = []
    for number in range(grouping.num_groups):
        ops = order[bounds[number] : bounds[number + 1]]
        names = [(str(problem.graph.op_names[op]), float(weight[op])) for op in ops.tolist()]
        groups.append(
            Group(
                scope_label(names),
                int(schedule.device_of_op[ops[0]]),
                len(ops),
                float(spent[number]),
                float(start[number]),
            )
        )
    return groups


def scope_label(names: Iterable[tuple[str, float]]) -> str:
    """The deepest name scope that holds at least half of the weight of (name, weight) pairs."""
    pairs = list(names)
    if len(pairs) == 1:
        return pairs[0][0]
    half = 0.5 * sum(weight for _, weight in pairs)
    prefix: tuple[str, ...] = ()
    while True:
        held: collections.defaultdict[str, float] = collections.defaultdict(float)
        for name, weight in pairs:
            parts = name.split("/")
            if len(parts) > len(prefix) and tuple(parts[: len(prefix)]) == prefix:
                held[parts[len(prefix)]] += weight
        best = max(held, key=lambda part: held[part], default="")
        if not held or held[best] < half:
            return "/".join(prefix) or f"{best}, ..."
        prefix = (*prefix, best)

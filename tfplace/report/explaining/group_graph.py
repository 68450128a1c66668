"""The op graph as a hundred groups or so, each on one device, for a picture of it."""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import colocation_units, group_sums, quotient
from tfplace.simulation.schedule import Schedule

MAX_GROUPS = 160
"""As many boxes with legible names as one scrolls through."""
MAX_EDGES = 900
FEW_SCOPES = 16
"""Names without scopes say nothing about a graph of more groups than that."""
SMALL_SHARE = 0.001
"""Of all ops' seconds: groups below it are shown as one for each device."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Ops that lie on one device.

    Attributes:
      label: their name scope; the op's name where there is one op.
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
    """Groups and what they exchange.

    Attributes:
      groups: by start, those of small ones last.
      edges: those between devices first, of these the largest first; at most MAX_EDGES.
      num_edges: with those left out.
      by: what a group is: "unit", "scope" or "cut".
    """

    groups: Sequence[Group]
    edges: Sequence[GroupEdge]
    num_edges: int
    by: str


def group_graph(problem: Problem, schedule: Schedule, max_groups: int = MAX_GROUPS) -> GroupGraph:
    """Summarises a placed graph.

    A group is a unit that is placed as one (a colocation group, or a single op) where there are at
    most `max_groups`; else what lies of a name scope on one device, the scopes that take longest
    opened first; where names have no scopes, ops that exchange much (grouping/coarsen.py).
    """
    if not problem.num_ops:
        return GroupGraph([], [], 0, "unit")
    grouping, by = colocation_units(problem.graph), "unit"
    labels: Sequence[str] = []
    if grouping.num_groups > max_groups:
        grouping, labels, by = *_scopes(problem, schedule, max_groups), "scope"
    if by == "scope" and grouping.num_groups < min(FEW_SCOPES, max_groups):
        placement = schedule.device_of_op
        grouping, by = coarsen(problem, max_groups, placement=placement), "cut"
        labels = []
    groups = _groups(problem, schedule, grouping, labels)
    order = sorted(range(len(groups)), key=lambda g: (groups[g].label == "", groups[g].start))
    rank = np.argsort(np.array(order))
    sizes = problem.graph.tensor_bytes[problem.graph.use_tensor].astype(np.float64)
    cut = quotient(problem.graph, grouping, sizes).tocoo()
    edges = [
        GroupEdge(int(rank[source]), int(rank[target]), int(count))
        for source, target, count in zip(cut.row, cut.col, cut.data, strict=True)
    ]
    placed = [groups[g] for g in order]

    def dearness(edge: GroupEdge) -> tuple[bool, int, int, int]:
        is_local = placed[edge.source].device == placed[edge.target].device
        return is_local, -edge.bytes, edge.source, edge.target

    edges.sort(key=dearness)
    return GroupGraph(placed, edges[:MAX_EDGES], len(edges), by)


def _scopes(
    problem: Problem, schedule: Schedule, max_groups: int
) -> tuple[Grouping, Sequence[str]]:
    """Groups of a scope and a device each, and their labels; "" for the small ones together."""
    seconds = schedule.op_end - schedule.op_start
    names = [str(name).split("/") for name in problem.graph.op_names]
    device = schedule.device_of_op
    scope = scope_of_op(names, seconds, device, max_groups)
    total = max(float(seconds.sum()), 1e-30)
    held: collections.defaultdict[tuple[str, int], float] = collections.defaultdict(float)
    for label, place, spent in zip(scope, device.tolist(), seconds.tolist(), strict=True):
        held[label, place] += spent
    keys = {key: key if held[key] >= SMALL_SHARE * total else ("", key[1]) for key in held}
    numbers: dict[tuple[str, int], int] = {}
    of_op = [
        numbers.setdefault(keys[label, place], len(numbers))
        for label, place in zip(scope, device.tolist(), strict=True)
    ]
    return Grouping(np.array(of_op, dtype=np.int32), len(numbers)), [label for label, _ in numbers]


def scope_of_op(
    names: Sequence[Sequence[str]], seconds: FloatArray, device_of_op: IntArray, max_groups: int
) -> list[str]:
    """[N]: name scopes such that there are at most `max_groups` pairs of a scope and a device.

    Begins with one scope for all and opens the one that takes longest, again and again; one whose
    parts would be too many stays closed. Without any room all ops are in the scope "model".

    Args:
      names: [N] the parts of each op's name.
      seconds: f8[N].
      device_of_op: i4[N].
      max_groups: pairs, at most, if every op's device can be told at all.
    """
    scope = ["model"] * len(names)
    every = np.arange(len(names), dtype=np.int32)
    heap: list[tuple[float, tuple[str, ...], IntArray]] = [(-float(seconds.sum()), (), every)]
    num_pairs = len(np.unique(device_of_op))
    while heap:
        _, prefix, ops = heapq.heappop(heap)
        parts: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
        for op in ops.tolist():
            deeper = names[op][len(prefix)] if len(names[op]) > len(prefix) + 1 else ""
            parts[deeper].append(op)
        more = sum(len(np.unique(device_of_op[part])) for part in parts.values())
        more -= len(np.unique(device_of_op[ops]))
        if set(parts) == {""} or num_pairs + more > max_groups:
            continue
        num_pairs += more
        for part, members in parts.items():
            inner = (*prefix, part) if part else prefix
            for op in members:
                scope[op] = "/".join(inner) or "model"
            if part:
                spent = float(seconds[members].sum())
                heapq.heappush(heap, (-spent, inner, np.array(members, dtype=np.int32)))
    return scope


def _groups(
    problem: Problem, schedule: Schedule, grouping: Grouping, labels: Sequence[str]
) -> list[Group]:
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
        named = [(str(problem.graph.op_names[op]), float(weight[op])) for op in ops.tolist()]
        groups.append(
            Group(
                labels[number] if labels else scope_label(named),
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
            return "/".join(prefix) or f"{best}, …"
        prefix = (*prefix, best)

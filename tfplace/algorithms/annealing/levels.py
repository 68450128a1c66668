"""Levels of a problem as compiled code reads them: what may move as one, coarse to fine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray, colocation_units, group_allowed


class Levels(NamedTuple):
    """L groupings of one problem, laid out one after another; groups are numbered through.

    Attributes:
      group_of_op: i4[L, N].
      member_row: i8[G+1], member: i4[N*L] the ops of each group, ascending.
      free_row: i8[L+1], free: i4[F] groups that may use more than one device, in graph order.
      edge_row: i8[L+1], edge_source, edge_target: i4[E] groups at the ends of each use that
        leaves a group, of which one at least is free.
      allowed: bool[G, D].
      device_limits: f8[G, D] running sums of each device's share in random moves.
      unit_of_op: i4[N], unit_row: i8[V+1], unit_member: i4[N] colocation units.
      op_allowed: bool[N, D].
    """

    group_of_op: IntArray
    member_row: LongArray
    member: IntArray
    free_row: LongArray
    free: IntArray
    edge_row: LongArray
    edge_source: IntArray
    edge_target: IntArray
    allowed: BoolArray
    device_limits: FloatArray
    unit_of_op: IntArray
    unit_row: LongArray
    unit_member: IntArray
    op_allowed: BoolArray


def levels_of(problem: Problem, groupings: Sequence[Grouping]) -> Levels:
    """Lays out groupings, none of which splits a colocation group."""
    op_allowed = problem.allowed()
    first = 0
    group_of_op, sizes, members, frees, sources, targets = [], [], [], [], [], []
    alloweds = []
    producer, consumer, _ = problem.graph.op_edges()
    for grouping in groupings:
        of_op = grouping.group_of_op
        allowed = group_allowed(op_allowed, grouping)
        free = allowed.sum(axis=1) > 1
        source, target = of_op[producer], of_op[consumer]
        leaves = (source != target) & (free[source] | free[target])
        group_of_op.append(of_op + first)
        sizes.append(np.bincount(of_op, minlength=grouping.num_groups))
        members.append(np.argsort(of_op, kind="stable"))
        frees.append(np.flatnonzero(free) + first)
        sources.append(source[leaves] + first)
        targets.append(target[leaves] + first)
        alloweds.append(allowed)
        first += grouping.num_groups
    units = colocation_units(problem.graph)
    unit_sizes = np.bincount(units.group_of_op, minlength=units.num_groups)
    return Levels(
        group_of_op=np.array(group_of_op, dtype=np.int32).reshape(-1, problem.num_ops),
        member_row=_rows(np.concatenate(sizes)),
        member=_whole(members),
        free_row=_rows(np.array([len(each) for each in frees])),
        free=_whole(frees),
        edge_row=_rows(np.array([len(each) for each in sources])),
        edge_source=_whole(sources),
        edge_target=_whole(targets),
        allowed=np.concatenate(alloweds),
        device_limits=np.concatenate(
            [_device_limits(problem, *pair) for pair in zip(groupings, alloweds, strict=True)]
        ),
        unit_of_op=units.group_of_op.astype(np.int32),
        unit_row=_rows(unit_sizes),
        unit_member=np.argsort(units.group_of_op, kind="stable").astype(np.int32),
        op_allowed=op_allowed,
    )


def _device_limits(problem: Problem, grouping: Grouping, allowed: BoolArray) -> FloatArray:
    """f8[G, D]: running sums of 1 / seconds, so that a group is seldom sent where it is slow."""
    seconds = np.zeros(allowed.shape)
    finite = np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0.0)
    np.add.at(seconds, grouping.group_of_op, finite)
    speed = np.where(allowed, 1.0 / (seconds + 1e-9), 0.0)
    return np.cumsum(speed, axis=1)


def _rows(sizes: LongArray) -> LongArray:
    rows = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=rows[1:])
    return rows


def _whole(parts: Sequence[LongArray]) -> IntArray:
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.int32)

"""Levels of a problem as compiled code reads them: what may move as one, coarse to fine."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Grouping, Problem
from tfplace.grouping.coarsen import Coarsening
from tfplace.grouping.copies import (
    WHOLE,
    is_mostly_repeated,
    is_split,
    role_groups,
    shard_of_op,
    tied_copies,
)
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import (
    BoolArray,
    colocation_units,
    group_allowed,
    group_sums,
    in_graph_order,
)

# Keeping roles together is of use only if that leaves at most this share of the units.
MOST_ROLES = 0.8


class Levels(NamedTuple):
    """L groupings of one problem, laid out one after another; groups are numbered through.

    Attributes:
      group_of_op: i4[L, N].
      member_row: i8[G+1] a group's ops are member[member_row[group] : member_row[group + 1]].
      member: i4[N*L] the ops of each group, ascending.
      free_row: i8[L+1] a level's free groups begin there.
      free: i4[F] groups that may use more than one device, in graph order.
      edge_row: i8[L+1] a level's edges begin there.
      edge_source: i4[E] the group that each use that leaves a group comes from.
      edge_target: i4[E] the group that it goes to; one of the two at least is free.
      allowed: bool[G, D].
      device_limits: f8[G, D] running sums of each device's share in random moves.
      unit_of_op: i4[N] colocation units.
      unit_row: i8[V+1] a unit's ops begin there.
      unit_member: i4[N] the ops of each unit, ascending.
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


def coarse_to_fine(
    problem: Problem,
    sizes: Sequence[int],
    seed: int,
    by_role: bool = False,
    of_units: Coarsening | None = None,
) -> Levels:
    """Minimum cuts into ever more groups, colocation units last.

    Args:
      sizes: groups per level, ascending; what the problem has too few units for is left out.
      seed: of the cuts: where the borders of coarse groups lie decides what a coarse move can do.
      by_role: whether coarse groups keep together what repeats itself, where much does.
      of_units: of the problem's colocation units, where it is known.
    """
    of_units = of_units or Coarsening(problem)
    of_roles = of_units
    if by_role:
        roles = role_groups(problem, seed)
        if roles.num_groups <= MOST_ROLES * of_units.start.num_groups:
            of_roles = Coarsening(problem, roles)
    return levels_of(problem, cuts(sizes, seed, of_units, of_roles))


def cuts(
    sizes: Sequence[int], seed: int, of_units: Coarsening, preferred: Coarsening
) -> list[Grouping]:
    """Groups of each size that there are more colocation units than, and these units.

    Args:
      sizes: ascending.
      of_units: for sizes that `preferred` has too few groups for.
      preferred: of the same problem, from groups that stay whole.
    """
    units = of_units.start
    groupings = [
        (preferred if size < preferred.start.num_groups else of_units).groups(size, seed)
        for size in sizes
        if size < units.num_groups
    ]
    return [*groupings, units]


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
    return Levels(
        group_of_op=np.array(group_of_op, dtype=np.int32).reshape(-1, problem.num_ops),
        member_row=_rows(np.concatenate(sizes)),
        member=_joined(members),
        free_row=_rows([len(each) for each in frees]),
        free=_joined(frees),
        edge_row=_rows([len(each) for each in sources]),
        edge_source=_joined(sources),
        edge_target=_joined(targets),
        allowed=np.concatenate(alloweds),
        device_limits=np.concatenate(
            [_device_limits(problem, *pair) for pair in zip(groupings, alloweds, strict=True)]
        ),
        unit_of_op=units.group_of_op.astype(np.int32),
        unit_row=_rows(np.bincount(units.group_of_op, minlength=units.num_groups)),
        unit_member=np.argsort(units.group_of_op, kind="stable").astype(np.int32),
        op_allowed=op_allowed,
    )


def _device_limits(problem: Problem, grouping: Grouping, allowed: BoolArray) -> FloatArray:
    """f8[G, D]: running sums of 1 / seconds, so that a group is seldom sent where it is slow."""
    finite = np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0.0)
    # The nanosecond lets groups of no time go anywhere alike.
    speed = np.where(allowed, 1.0 / (group_sums(finite, grouping) + 1e-9), 0.0)
    return np.cumsum(speed, axis=1)


def _rows(sizes: npt.ArrayLike) -> LongArray:
    """i8[K+1]: where each of K parts of the given sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _joined(parts: Sequence[LongArray]) -> IntArray:
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.int32)


# Levels of a split step: what may move as one there is a shard, a role, or copies of the same ops.
#
# Two kinds of levels take turns. In one, groups are parts of a single shard, the coarsest a whole
# shard; an op that is whole moves with its role, a variable with the sum of its gradient and its
# update. In the other, copies of an op are never parted, so that a group is a layer over all
# shards; of 50,000 split ops in eight shards it has little more than 6,000 to group.


class LevelsInTurn:
    """Makes the levels of runs of one problem: the kinds that it has take turns."""

    def __init__(self, problem: Problem, sizes: Sequence[int]) -> None:
        """Makes none yet; `sizes` are groups per level, ascending."""
        self._problem, self._sizes = problem, sizes
        self._of_units = Coarsening(problem)

    def levels(self, seed: int, turn: int) -> Levels:
        """The levels of one run; several threads may ask for them.

        Args:
          turn: 0, 1, ...
        """
        problem, of_units = self._problem, self._of_units
        if not is_split(problem):
            by_role = turn % 2 == 1 or self._is_repeated
            return coarse_to_fine(problem, self._sizes, seed, by_role, of_units)
        if turn % 2 == 0:
            return levels_of(problem, [*self._shard_groups(seed), of_units.start])
        return levels_of(problem, cuts(self._sizes, seed, of_units, self._of_ties))

    @functools.cached_property
    def _is_repeated(self) -> bool:
        return is_mostly_repeated(self._problem)

    @functools.cached_property
    def _of_ties(self) -> Coarsening:
        return Coarsening(self._problem, tied_copies(self._problem))

    @functools.cached_property
    def _apart(self) -> tuple[BoolArray, IntArray, Coarsening]:
        """Which ops move with whole ones bool[N], each op's shard i4[N], and its parts."""
        units, shard = self._of_units.start, shard_of_op(self._problem)
        has_whole = np.zeros(units.num_groups, dtype=bool)
        has_whole[units.group_of_op[shard == WHOLE]] = True
        is_whole = has_whole[units.group_of_op]
        apart = (np.where(is_whole, WHOLE, shard) + 1).astype(np.int32)
        return is_whole, apart, Coarsening(self._problem, units, apart)

    def _shard_groups(self, seed: int) -> list[Grouping]:
        """Whole shards and roles; then smaller and smaller parts of shards, and roles."""
        is_whole, apart, of_shards = self._apart
        roles = layer_groups(self._problem, seed, min_share=0.0, apart=apart)
        smaller = [size for size in self._sizes[::2] if size < of_shards.start.num_groups]
        parts = [apart, *(of_shards.groups(size, seed).group_of_op for size in smaller)]
        role, first_part = roles.group_of_op, roles.num_groups
        return [in_graph_order(np.where(is_whole, role, first_part + part)) for part in parts]

"""Levels of a split step: what may move as one there is a shard, a role, or copies of the same ops.

Two kinds of levels take turns. In one, groups are parts of a single shard, the coarsest a whole
shard; an op that is whole moves with its role, a variable with the sum of its gradient and its
update. In the other, copies of an op are never parted, so that a group is a layer over all shards;
of 50,000 split ops in eight shards it has little more than 6,000 to group.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.algorithms.annealing.levels import Levels, coarse_to_fine, cuts, levels_of
from tfplace.grouping.coarsen import Coarsening
from tfplace.grouping.copies import WHOLE, is_split, shard_of_op, tied_copies
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import BoolArray, in_graph_order
from tfplace.grouping.roles import is_mostly_repeated


class LevelsInTurn:
    """Makes the levels of runs of one problem: the kinds that it has take turns."""

    def __init__(self, problem: Problem, sizes: Sequence[int]) -> None:
        """Makes none yet.

        Args:
          problem: N ops.
          sizes: groups per level, ascending; where shards move apart, roles come on top of these.
        """
        self._problem, self._sizes = problem, sizes
        self._of_units = Coarsening(problem)

    def levels(self, seed: int, turn: int) -> Levels:
        """The levels of one run; several threads may ask for them.

        Args:
          seed: of the cuts.
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

"""Levels of a split step: what may move as one there is a shard, a role, or copies of the same ops.

Two kinds of levels take turns. In one, groups are parts of a single shard, the coarsest a whole
shard; an op that is whole moves with its role, a variable with the sum of its gradient and its
update. In the other, copies of an op are never parted, so that a group is a layer over all shards;
of 50,000 split ops in eight shards it has little more than 6,000 to group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.algorithms.annealing.levels import Levels, coarse_to_fine, levels_of
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.copies import WHOLE, is_split, shard_of_op, tied_copies
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import colocation_units, in_graph_order


def levels_in_turn(problem: Problem, sizes: Sequence[int], seed: int, turn: int) -> Levels:
    """The levels of one run among several: the kinds that a problem has take turns.

    Args:
      problem: N ops.
      sizes: groups per level, ascending; where shards move apart, roles come on top of these.
      seed: of the cuts.
      turn: 0, 1, ...
    """
    if not is_split(problem):
        return coarse_to_fine(problem, sizes, seed, by_role=turn % 2 == 1)
    units = colocation_units(problem.graph)
    if turn % 2 == 0:
        return levels_of(problem, [*_shard_groups(problem, sizes, seed, units), units])
    ties = tied_copies(problem)
    groupings = [
        coarsen(problem, size, seed, start=ties if size < ties.num_groups else units)
        for size in sizes
        if size < units.num_groups
    ]
    return levels_of(problem, [*groupings, units])


def _shard_groups(
    problem: Problem, sizes: Sequence[int], seed: int, units: Grouping
) -> list[Grouping]:
    """Whole shards and roles; then smaller and smaller parts of shards, and roles."""
    shard = shard_of_op(problem)
    has_whole = np.zeros(units.num_groups, dtype=bool)
    has_whole[units.group_of_op[shard == WHOLE]] = True
    is_whole = has_whole[units.group_of_op]
    apart = (np.where(is_whole, WHOLE, shard) + 1).astype(np.int32)
    roles = layer_groups(problem, seed, min_share=0.0, apart=apart)
    parts = [apart]
    for size in sizes[::2]:
        if size < units.num_groups:
            grouping = coarsen(problem, size, seed, start=units, placement=apart)
            parts.append(grouping.group_of_op)
    role, first_part = roles.group_of_op, roles.num_groups
    return [in_graph_order(np.where(is_whole, role, first_part + part)) for part in parts]

"""Roles in repeated structure: what a layer does alike in every unrolled step is one group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphs.op_graph import LongArray, OpGraph
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import colocation_units, in_graph_order

# A role is played by at least so many ops of a layer.
MIN_REPEATS = 8

MOSTLY = 0.25
"""A graph is mostly repeated if its roles and what has none are at most this share of its units:
0.1 of rnnlm's, 0.05 of nmt's; 0.3 of the transformer's, 0.67 of moe's."""

_WordArray = npt.NDArray[np.uint64]


def role_groups(problem: Problem, seed: int = 0) -> Grouping:
    """One group for the ops of a layer that play the same role; all other units stay alone.

    In an unrolled recurrent graph a role is something like "a product that the layer's kernel
    gradient is summed of", and its group has one such op of every time step. Good placements move
    them together. Minimum cuts make groups of near ops instead, which hold one time step of
    several layers. With groups of roles in every other run, annealing came 7 % lower (nmt, rnnlm,
    moe, inception_v3 and transformer on four and eight devices).

    Args:
      problem: N ops.
      seed: of the layers.
    """
    layer = layer_groups(problem, seed).group_of_op.astype(np.int64)
    units = colocation_units(problem.graph)
    role = roles(problem.graph)
    _, part, repeats = np.unique(
        layer * problem.num_ops + role, return_inverse=True, return_counts=True
    )
    unit_sizes = np.bincount(units.group_of_op, minlength=units.num_groups)
    alone = (unit_sizes[units.group_of_op] > 1) | (repeats[part] < MIN_REPEATS)
    return in_graph_order(np.where(alone, len(repeats) + units.group_of_op, part))


def is_mostly_repeated(problem: Problem) -> bool:
    """Whether little is left to place when each role is placed as one."""
    num_units = colocation_units(problem.graph).num_groups
    return role_groups(problem).num_groups <= MOSTLY * num_units


def roles(graph: OpGraph) -> LongArray:
    """i8[N]: a number for each op that ops of the same type with like neighbours share.

    One round of colour refinement (Weisfeiler and Leman 1968) from the types: to an op's own hash
    come sums of hashes over its inputs and its users, each with the bytes of the tensor.
    """
    _, number = np.unique(np.asarray(graph.op_types), return_inverse=True)
    own = _hashed(number.astype(np.uint64), 1)
    source, target = graph.tensor_producer[graph.use_tensor], graph.use_op
    size = _hashed(graph.tensor_bytes[graph.use_tensor].astype(np.uint64), 2)
    inputs, outputs = np.zeros_like(own), np.zeros_like(own)
    np.add.at(inputs, target, _hashed(own[source] ^ size, 3))
    np.add.at(outputs, source, _hashed(own[target] ^ size, 4))
    return np.unique(own ^ _hashed(inputs, 5) ^ _hashed(outputs, 6), return_inverse=True)[1]


def _hashed(words: _WordArray, salt: int) -> _WordArray:
    """u8[...]: the words scrambled, as the generator SplitMix64 ends (Steele et al. 2014)."""
    words = words + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

"""Copies of one op in a split step: for which shard each works, and which belong together.

The names say it (the contract, section 9): the copy of `a/b` for shard m is `a/b/shard_m`. They
come along wherever a problem goes: into dumps, other processes, fused problems.
"""

import numpy as np
import numpy.typing as npt

from graphs.names import RELAY, SHARD, original_name
from graphs.op_graph import IntArray, LongArray, OpGraph
from graphs.problem import Grouping, Problem
from tfplace.grouping.layers import layer_groups
from tfplace.grouping.quotient import BoolArray, allowed_class, colocation_units, in_graph_order

WHOLE = -1
"""The shard of an op that is no copy."""


def shard_of_op(problem: Problem) -> IntArray:
    """i4[N]: which shard an op works for; WHOLE for an op that is whole."""
    found = (SHARD.search(name) for name in problem.graph.op_names)
    return np.array([WHOLE if each is None else int(each[1]) for each in found], dtype=np.int32)


def is_relay(problem: Problem, with_blocks: bool = True) -> BoolArray:
    """bool[N]: what hands a whole tensor on from shard to shard, all of it or a block of rows."""
    found = (RELAY.search(name) for name in problem.graph.op_names)
    handed = [each is not None and (with_blocks or each[1] is None) for each in found]
    return np.array(handed, dtype=bool)


def gathers_shards(graph: OpGraph, shard: IntArray) -> BoolArray:
    """bool[N]: ops that use tensors of more than one shard.

    Args:
      graph: of a split step.
      shard: i4[N] see shard_of_op.
    """
    maker = shard[graph.tensor_producer[graph.use_tensor]]
    of_copy = maker != WHOLE
    first = np.full(graph.num_ops, np.iinfo(np.int32).max)
    last = np.full(graph.num_ops, WHOLE)
    np.minimum.at(first, graph.use_op[of_copy], maker[of_copy])
    np.maximum.at(last, graph.use_op[of_copy], maker[of_copy])
    return np.asarray(last > first)


def is_split(problem: Problem) -> bool:
    """Whether any op is a copy for a shard."""
    return any(SHARD.search(name) for name in problem.graph.op_names)


def tied_copies(problem: Problem) -> Grouping:
    """Colocation units, all copies of an op together where they may use the same devices.

    What is placed in these groups is placed as the unsplit step is: for 50,000 ops in eight shards
    there are little more than 6,000 of them.
    """
    units = colocation_units(problem.graph)
    is_alone = np.bincount(units.group_of_op)[units.group_of_op] == 1
    classes = allowed_class(problem.allowed()).tolist()
    names = np.array(
        [
            f"{kind} {original_name(name)}"
            for kind, name in zip(classes, problem.graph.op_names, strict=True)
        ]
    )
    is_copy = is_alone & (shard_of_op(problem) != WHOLE)
    label = units.group_of_op.astype(np.int64)
    _, number = np.unique(names[is_copy], return_inverse=True)
    label[is_copy] = units.num_groups + number
    return in_graph_order(label)


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
    return role_groups(problem).num_groups <= MOSTLY * colocation_units(problem.graph).num_groups


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

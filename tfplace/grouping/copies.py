"""Copies of one op in a split step: for which shard each works, and which belong together.

The names say it (the contract, section 9): the copy of `a/b` for shard m is `a/b/shard_m`. They
come along wherever a problem goes: into dumps, other processes, fused problems.
"""

from __future__ import annotations

import numpy as np

from graphs.names import RELAY, SHARD, original_name
from graphs.op_graph import IntArray, OpGraph
from graphs.placement import Grouping
from graphs.problem import Problem
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

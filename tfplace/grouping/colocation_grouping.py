"""ColocRL's groups: colocation, then an op joins its only consumer, to a fixed point."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from graphs.op_graph import IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.grouping.quotient import (
    allowed_class,
    colocation_units,
    in_graph_order,
    quotient,
)


def only_consumer(edges: sparse.csr_array) -> IntArray:
    """i4[G]: the group that alone uses a group's tensors; where none or several do, the group.

    Args:
      edges: [G, G] directed, no diagonal; a stored entry is an edge whatever its weight.
    """
    consumer = np.arange(edges.shape[0], dtype=np.int32)
    single = np.diff(edges.indptr) == 1
    consumer[single] = edges.indices[edges.indptr[:-1][single]]
    return consumer


def joined(grouping: Grouping, target_of_group: IntArray) -> Grouping:
    """Merges each group i4[G] with the group it points at, chains and circles included."""
    size = grouping.num_groups
    links = sparse.coo_array(
        (np.ones(size, dtype=bool), (np.arange(size), target_of_group)), shape=(size, size)
    )
    _, part = csgraph.connected_components(links, directed=False)
    return in_graph_order(part[grouping.group_of_op])


def colocrl_grouping(problem: Problem, placement: IntArray | None = None) -> Grouping:
    """Colocation groups, then repeatedly joins a group to its only consumer, to a fixed point.

    Source: Mirhoseini et al., ICML 2017, "co-locating operations"; the joining rule as in its
    successors' code. Departure: groups join only where they may use the same devices, so that
    no group is left without a device and no GPU op is dragged to the CPU by a CPU-only consumer.

    Args:
      problem: N ops.
      placement: i4[N] a legal placement whose borders no group crosses, or None.

    Returns:
      A grouping that keeps colocation groups whole, numbered in graph order.
    """
    class_of_op = allowed_class(problem.allowed(), placement)
    uses = np.ones(len(problem.graph.use_op))
    grouping = colocation_units(problem.graph)
    while True:
        class_of_group = np.zeros(grouping.num_groups, dtype=np.int32)
        class_of_group[grouping.group_of_op] = class_of_op
        target = only_consumer(quotient(problem.graph, grouping, uses))
        stays = class_of_group[target] != class_of_group
        target[stays] = np.arange(grouping.num_groups, dtype=np.int32)[stays]
        merged = joined(grouping, target)
        if merged.num_groups == grouping.num_groups:
            return merged
        grouping = merged

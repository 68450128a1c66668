"""Layers of a graph, found by its variables: what computes with a variable lies with it."""

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Grouping, Problem
from tfplace.grouping.quotient import (
    allowed_class,
    colocation_units,
    fastest_seconds,
    group_sums,
    in_graph_order,
    quotient,
    use_seconds,
)

# A layer takes at least this share of all seconds; what is smaller joins a neighbour.
MIN_SHARE = 0.003

# Edges are taken dearest first, and many are equally dear, so that their order is arbitrary. Noise
# on their weights makes it depend on the seed: the standard deviation of its logarithm.
WEIGHT_NOISE = 0.05

# When layers that are too small have joined others, these may still be too small: so many times
# at most.
_NUM_ROUNDS = 3


def layer_groups(
    problem: Problem, seed: int = 0, min_share: float = MIN_SHARE, apart: IntArray | None = None
) -> Grouping:
    """One group for each variable that much is computed with: its readers, gradients and update.

    It is a watershed with the variables as markers: edges are taken dearest first, and each joins
    an op to the variable that the other end belongs to (Cousty et al. 2009: a minimum spanning
    forest rooted in the markers). So a product joins its kernel, the sum of that kernel's
    gradients joins its update, and elementwise ops join the product that they follow. Groups never
    mix ops that may use different devices. Ops that no edge ties to a variable are one group for
    each set of devices.

    Args:
      problem: N ops; those with persistent bytes are the variables.
      seed: of the order of edges that are about equally dear.
      min_share: of all seconds, what a group takes at least.
      apart: i4[N] ops of different numbers, below 255, share no group; None for no such thing.
    """
    units = colocation_units(problem.graph)
    allowed = problem.allowed()
    kind = np.zeros(units.num_groups, dtype=np.int64)
    kind[units.group_of_op] = allowed_class(allowed, apart)
    seconds = group_sums(fastest_seconds(problem, allowed), units)
    cut = quotient(problem.graph, units, use_seconds(problem))
    both: sparse.coo_array = (cut + cut.T).tocoo()
    kept = (both.row < both.col) & (kind[both.row] == kind[both.col])
    one, other, weight = both.row[kept], both.col[kept], both.data[kept]
    noise: FloatArray = np.random.default_rng(seed).standard_normal(len(weight))
    order = np.argsort(-weight * np.exp(WEIGHT_NOISE * noise), kind="stable")
    edges = one[order], other[order]  # both ends of each between units of one kind, dearest first
    markers = np.flatnonzero(group_sums(problem.graph.op_persistent_bytes, units) > 0)
    marker = _watershed(edges, markers, units.num_groups)
    for _ in range(_NUM_ROUNDS):
        tied = marker >= 0
        taken = np.bincount(marker[tied], seconds[tied], minlength=units.num_groups)
        dear = markers[taken[markers] >= min_share * seconds.sum()]
        if len(dear) in (0, len(markers)):
            break
        markers = dear
        marker = _watershed(edges, markers, units.num_groups)
    label = np.where(marker >= 0, marker, units.num_groups + kind)
    return in_graph_order(label[units.group_of_op])


def _watershed(
    edges: tuple[IntArray, IntArray], markers: npt.NDArray[np.integer], size: int
) -> LongArray:
    """i8[V]: the marker that each vertex ends with, -1 where none can be reached.

    A minimum spanning tree is made with one vertex more, which has the cheapest edges, to all
    markers; without that vertex it falls into a tree for each marker.
    """
    one = np.concatenate([edges[0], markers])
    other = np.concatenate([edges[1], np.full(len(markers), size)])
    cost = np.concatenate([np.arange(1.0, len(edges[0]) + 1.0), np.full(len(markers), 0.5)])
    shape = (size + 1, size + 1)
    tree = minimum_spanning_tree(sparse.csr_array((cost, (one, other)), shape=shape)).tocoo()
    inside = tree.col < size
    pairs = (tree.row[inside], tree.col[inside])
    forest = sparse.csr_array((np.ones(len(pairs[0])), pairs), shape=(size, size))
    count, part = connected_components(forest, directed=False)
    marker_of_part = np.full(count, -1, dtype=np.int64)
    marker_of_part[part[markers]] = markers
    return marker_of_part[part]

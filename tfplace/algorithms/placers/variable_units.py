"""Which variables are updated together: a weight and what its optimizer keeps for it."""

import itertools

import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from graphs.op_graph import IntArray, LongArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.grouping.quotient import BoolArray, fastest_seconds

_SMALL_BYTES = 64
"""Learning rates, counters and norms, which all updates read and which bind none to another."""


def variable_units(problem: Problem, shard_of_op: IntArray) -> LongArray:
    """i8[N]: ops with one number share a device in data parallelism; most are alone.

    Colocation groups do. An optimizer that is written in many ops (Keras's Adam) updates a weight
    and its two moments in three groups, which all read the same summed gradient: on different
    devices it would travel more often than any ring sends it. So groups are one that large tensors
    connect behind the last op of a shard.

    Args:
      problem: of a split step; its ops are in a topological order.
      shard_of_op: i4[N] which shard an op works for; -1 for an op that is whole.
    """
    graph = problem.graph
    group = np.where(
        graph.colocation_group >= 0,
        graph.colocation_group,
        graph.colocation_group.max(initial=-1) + 1 + np.arange(problem.num_ops),
    ).astype(np.int64)
    source, target, num_bytes = graph.op_edges()
    after = _after_all_shards(problem, shard_of_op)
    makers = graph.tensor_producer[graph.tensor_output >= 0]
    # A tuple of all gradients binds none to another.
    has_one = np.bincount(makers, minlength=problem.num_ops) <= 1
    joined = after[source] & after[target] & has_one[source] & has_one[target]
    joined &= num_bytes > _SMALL_BYTES
    ends = group[source[joined]], group[target[joined]]
    size = int(group.max(initial=-1)) + 1
    edges = coo_array((np.ones(len(ends[0])), ends), shape=(size, size))
    _, unit_of_group = connected_components(edges, directed=False)
    return np.asarray(unit_of_group, dtype=np.int64)[group]


def with_their_layers(problem: Problem, shard_of_op: IntArray, unit_of_op: LongArray) -> LongArray:
    """i8[N]: the units, joined by whole ops that work on the batch with the weights that they read.

    Such an op lies where the largest whole tensor that it reads comes from; if that is a weight, so
    does what has made the others, which makes a unit of the layers of one expert of a mixture. A
    unit takes in no other one if both together have more than a device's share of that work.

    Args:
      problem: of a split step, its ops are in a topological order.
      shard_of_op: i4[N] which shard an op works for; -1 for an op that is whole.
      unit_of_op: i8[N] see variable_units.
    """
    graph = problem.graph
    has_variables = (variable_bytes(problem, unit_of_op) > 0)[unit_of_op]
    label = np.where(has_variables, unit_of_op, -1).tolist()
    seconds = np.where(shard_of_op < 0, fastest_seconds(problem, problem.allowed()), 0.0)
    most = float(seconds.sum()) / len(working_devices(problem))
    work = np.zeros(len(label))
    joined = DisjointSet(np.unique(unit_of_op[has_variables]).tolist())
    source, target, num_bytes = graph.op_edges()
    counts = (shard_of_op[source] < 0) & (shard_of_op[target] < 0) & (num_bytes > _SMALL_BYTES)
    uses = np.flatnonzero(counts & ~has_variables[target])
    uses = uses[np.lexsort((-num_bytes[uses], target[uses]))]
    for op, group in itertools.groupby(uses.tolist(), key=target.__getitem__):
        makers = [maker for maker in source[list(group)].tolist() if label[maker] >= 0]
        if not makers:
            continue
        label[op] = own = joined[label[makers[0]]]
        work[own] += seconds[op]
        for other in {joined[label[maker]] for maker in makers if has_variables[makers[0]]}:
            own, together = joined[own], work[joined[own]] + work[other]
            if together <= most and joined.merge(own, other):
                work[joined[own]] = together
    return np.array(
        [unit if own < 0 else joined[own] for own, unit in zip(label, unit_of_op, strict=True)],
        dtype=np.int64,
    )


def variable_bytes(problem: Problem, unit_of_op: LongArray) -> LongArray:
    """i8[V]: what each unit's variables hold; constants are none, they lie where they are read."""
    graph = problem.graph
    is_constant = np.array([op_type == "Const" for op_type in graph.op_types], dtype=bool)
    held = np.where(is_constant, 0, graph.op_persistent_bytes)
    return np.bincount(unit_of_op, weights=held).astype(np.int64)


def _after_all_shards(problem: Problem, shard_of_op: IntArray) -> BoolArray:
    """Whole ops of whose results no shard learns in the same step, but for small ones.

    The norm of all gradients tells a shard whose gradients are sparse how much to clip of them.
    """
    graph = problem.graph
    source = graph.tensor_producer[graph.use_tensor]
    is_large = graph.tensor_bytes[graph.use_tensor] > _SMALL_BYTES
    reaches = shard_of_op >= 0
    for use in np.argsort(-source, kind="stable").tolist():  # an op's users come before it
        if reaches[graph.use_op[use]] and is_large[use]:
            reaches[source[use]] = True
    return ~reaches

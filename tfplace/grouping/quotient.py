"""Groups of ops: their numbers, the devices they may use, their sums, the edges between them."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphs.op_graph import FloatArray, IntArray, LongArray, OpGraph
from graphs.problem import Grouping, Problem

BoolArray = npt.NDArray[np.bool_]
_ALL = slice(None)


def in_graph_order(label_of_op: npt.NDArray[np.integer]) -> Grouping:
    """Numbers the parts of a partition 0, 1, ... by the mean position of their ops.

    Policies read the groups as a sequence, and op positions are topological, so neighbours in
    the graph become neighbours in the sequence. Ties go to the part with the earlier first op.

    Args:
      label_of_op: int[N], any values; equal values are one part.
    """
    _, first, part = np.unique(label_of_op, return_index=True, return_inverse=True)
    position = np.bincount(part, weights=np.arange(len(part))) / np.bincount(part)
    order = np.lexsort((first, position))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return Grouping(group_of_op=rank[part], num_groups=len(order))


def colocation_units(graph: OpGraph) -> Grouping:
    """One group per colocation group and one per op outside of them: the finest legal partition."""
    label = np.arange(graph.num_ops, dtype=np.int64)
    member = graph.colocation_group >= 0
    label[member] = graph.num_ops + graph.colocation_group[member]
    return in_graph_order(label)


def group_allowed(allowed: BoolArray, grouping: Grouping) -> BoolArray:
    """bool[G, D]: the devices that every op of a group may use, of those of ops bool[N, D]."""
    joint = np.ones((grouping.num_groups, allowed.shape[1]), dtype=bool)
    np.logical_and.at(joint, grouping.group_of_op, allowed)
    return joint


def group_sums(values: Any, grouping: Grouping) -> Any:
    """f8[G, ...]: sums over each group's ops of values f8[N, ...]; sparse if these are."""
    size = len(grouping.group_of_op)
    member = sparse.csc_array(
        (np.ones(size), grouping.group_of_op, np.arange(size + 1)),
        shape=(grouping.num_groups, size),
    )
    return member @ values


def allowed_class(allowed: BoolArray, placement: IntArray | None = None) -> IntArray:
    """i4[N]: a number for each op that ops with equal rows of `allowed` share.

    Groups are made within such classes: a GPU op that shares a group with a CPU-only op would have
    to follow it.

    Args:
      allowed: bool[N, D].
      placement: i4[N] of devices below 256 whose borders no group is to cross: then ops of one
        class also lie on one device; or None.
    """
    rows = np.packbits(allowed, axis=1)
    if placement is not None:
        rows = np.concatenate([rows, placement[:, np.newaxis].astype(np.uint8)], axis=1)
    _, number = np.unique(rows, axis=0, return_inverse=True)
    return number.reshape(-1).astype(np.int32)


def fastest_seconds(
    problem: Problem, allowed: BoolArray, ops: LongArray | slice = _ALL
) -> FloatArray:
    """f8[N]: seconds of each op on the fastest device that it may use (0 where there is none).

    Args:
      problem: with N ops.
      allowed: bool[N, D] where each may lie.
      ops: only of these.
    """
    seconds = np.where(allowed[ops], problem.op_seconds[ops], np.inf).min(axis=1)
    return np.where(np.isfinite(seconds), seconds, 0.0)


def transfer_seconds(problem: Problem) -> FloatArray:
    """f8[T]: time to move each tensor over the cluster's mean link, without queueing."""
    other = ~np.eye(problem.num_devices, dtype=bool)
    if not other.any():
        return np.zeros(problem.graph.num_tensors)
    per_byte = float(np.mean(1.0 / problem.link_bytes_per_second[other]))
    return problem.link_latency[other].mean() + problem.graph.tensor_bytes * per_byte


def use_seconds(problem: Problem) -> FloatArray:
    """f8[U]: seconds that cutting each use costs.

    A tensor with k users is sent at most min(k, D - 1) times, however many of its uses are cut:
    what these transfers take is shared out among its uses.
    """
    tensor = problem.graph.use_tensor
    users = np.bincount(tensor, minlength=problem.graph.num_tensors)
    sends = np.minimum(users, max(problem.num_devices - 1, 1))
    return (transfer_seconds(problem) * sends / np.maximum(users, 1))[tensor]


def quotient(graph: OpGraph, grouping: Grouping, weight_of_use: FloatArray) -> sparse.csr_array:
    """Directed weights f8[G, G] between groups: the sum of f8[U] over the uses from one to another.

    The diagonal (uses inside a group) is dropped; uses of weight 0 stay as explicit zeros.
    """
    producer, consumer, _ = graph.op_edges()
    source = grouping.group_of_op[producer]
    target = grouping.group_of_op[consumer]
    cut = source != target
    shape = (grouping.num_groups, grouping.num_groups)
    return sparse.coo_array((weight_of_use[cut], (source[cut], target[cut])), shape=shape).tocsr()

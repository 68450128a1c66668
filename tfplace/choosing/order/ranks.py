"""What should start first: the ranks of ops in a placed problem, least first."""

from __future__ import annotations

import numpy as np

from graphs.compressed_rows import row_starts
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.grouping.copies import shard_of_op


def by_longest_path(problem: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: the op with the longest path to the end goes first; of equals the lowest."""
    return _positions(-path_to_end(problem, device_of_op))


def by_shard(problem: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: whole ops first, then shard by shard, the first one to its end before the next.

    So a device holds the activations of one shard at a time, and a stage of a pipeline works
    backward on a shard as soon as it can, before it goes forward with a later one (1F1B).
    """
    path = path_to_end(problem, device_of_op)
    return _numbered(np.lexsort((path, shard_of_op(problem))))


def path_to_end(problem: Problem, device_of_op: IntArray) -> FloatArray:
    """f8[N] seconds: the longest path from an op's start to the end, with moves on idle links."""
    graph = problem.graph
    producer, user, moved = graph.op_edges()
    source, target = device_of_op[producer], device_of_op[user]
    move = np.where(
        source == target,
        0.0,
        moved / problem.link_bytes_per_second[source, target]
        + problem.link_latency[source, target],
    )
    by_producer = np.argsort(producer, kind="stable")
    users, moves = user[by_producer].tolist(), move[by_producer].tolist()
    row = row_starts(producer, graph.num_ops).tolist()
    path = problem.op_seconds[np.arange(graph.num_ops), device_of_op].tolist()
    for op in range(graph.num_ops - 1, -1, -1):
        first, last = row[op], row[op + 1]
        rest = (path[u] + m for u, m in zip(users[first:last], moves[first:last], strict=True))
        path[op] += max(rest, default=0.0)
    return np.array(path)


def _positions(value: FloatArray) -> IntArray:
    return _numbered(np.argsort(value, kind="stable"))


def _numbered(sorted_ops: np.ndarray) -> IntArray:
    rank = np.empty(len(sorted_ops), dtype=np.int32)
    rank[sorted_ops] = np.arange(len(sorted_ops), dtype=np.int32)
    return rank

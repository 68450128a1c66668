"""HEFT: heterogeneous earliest finish time."""

from __future__ import annotations

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.earliest_finish import earliest_finish
from tfplace.algorithms.placers.memory import made_to_fit
from tfplace.grouping.quotient import transfer_seconds
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator


def heft(problem: Problem, seed: int = 0) -> IntArray:
    """Ops by upward rank, each to the device where it ends first, in a gap if one is wide enough.

      rank(i) = mean_d w_id + max over users j of (c_ij + rank(j))

    Source: Topcuoglu, Hariri, Wu, TPDS 2002. Departures: memory as in m-ETF; a colocation group
    goes where its first op goes; a gap is looked for among the first thousand after the op is
    ready.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    allowed = problem.allowed()
    seconds = np.where(allowed, problem.op_seconds, 0.0).sum(axis=1)
    mean_seconds = seconds / np.maximum(allowed.sum(axis=1), 1)
    rank = upward_rank(simulator.arrays, mean_seconds, transfer_seconds(problem))
    # Ties in rank fall back on op order, which is topological.
    order = np.argsort(-rank, kind="stable").astype(np.int32)
    return made_to_fit(simulator, earliest_finish(simulator, order), seed)[None]


def upward_rank(
    arrays: SimulationArrays, op_seconds: FloatArray, move_seconds: FloatArray
) -> FloatArray:
    """f8[N]: the longest path from each op to the end, its own seconds included.

    Args:
      arrays: the graph.
      op_seconds: f8[N].
      move_seconds: f8[T].
    """
    rank = np.zeros(len(op_seconds))
    _upward_rank(arrays, op_seconds, move_seconds, rank)
    return rank


@compiled
def _upward_rank(
    arrays: SimulationArrays, op_seconds: FloatArray, move_seconds: FloatArray, rank: FloatArray
) -> None:
    for op in range(len(rank) - 1, -1, -1):
        longest = 0.0
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
                longest = max(longest, move_seconds[tensor] + rank[arrays.use_op[index]])
        rank[op] = op_seconds[op] + longest

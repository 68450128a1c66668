"""HEFT: heterogeneous earliest finish time."""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from tfplace.algorithms.placers.list_problem import (
    ListProblem,
    PartialSchedule,
    arrival,
    empty_schedule,
    list_problem,
    may_take,
    place_op,
)
from tfplace.algorithms.placers.memory import made_to_fit
from tfplace.grouping.quotient import transfer_seconds
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator

# So many gaps of a device are looked into before an op is appended.
MAX_GAPS = 1000
# There is a timeline for each slot; a device with more slots than this counts as this many.
MAX_TIMELINES = 8


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


class _Timelines(NamedTuple):
    """What runs when on each slot, L of them, at most N ops each."""

    device: IntArray  # i4[L]
    start: FloatArray  # f8[L, N] seconds, ascending
    end: FloatArray  # f8[L, N] seconds, ascending
    num_ops: LongArray  # i8[L]


def earliest_finish(simulator: Simulator, order: IntArray) -> IntArray:
    """Puts each op, in a given order, where it ends first, maybe between ops placed before it.

    Args:
      order: i4[N] a topological order, most urgent first.

    Returns:
      i4[N] devices.
    """
    arrays = simulator.arrays
    problem = list_problem(simulator, only_working=False)
    num_slots = np.minimum(arrays.slots, MAX_TIMELINES)
    device = np.repeat(np.arange(len(num_slots), dtype=np.int32), num_slots)
    shape = (len(device), len(order))
    num_ops = np.zeros(len(device), dtype=np.int64)
    timelines = _Timelines(device, np.empty(shape), np.empty(shape), num_ops)
    schedule = empty_schedule(problem)
    _earliest_finish(arrays, problem, order, schedule, timelines)
    return schedule.device_of_op


@compiled
def _earliest_finish(
    arrays: SimulationArrays,
    problem: ListProblem,
    order: IntArray,
    schedule: PartialSchedule,
    timelines: _Timelines,
) -> None:
    for position in range(len(order)):
        op = order[position]
        best_line, best_place, best_end = -1, 0, np.inf
        for line in range(len(timelines.device)):
            device = timelines.device[line]
            if not may_take(problem, schedule, op, device):
                continue
            seconds = arrays.op_seconds[op, device]
            ready = arrival(arrays, schedule, op, device)
            place, start = _gap(timelines, line, ready, seconds)
            if start + seconds < best_end or best_line < 0:
                best_line, best_place, best_end = line, place, start + seconds
        device = timelines.device[best_line]
        place_op(problem, schedule, op, device, best_end)
        _insert(timelines, best_line, best_place, best_end - arrays.op_seconds[op, device])
        timelines.end[best_line, best_place] = best_end


@compiled_part
def _gap(timelines: _Timelines, line: int, ready: float, seconds: float) -> tuple[int, float]:
    """The first gap of a timeline that takes an op: its position and the op's start."""
    count = timelines.num_ops[line]
    # Binary search for the first op that ends after the inputs are there.
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if timelines.end[line, middle] > ready:
            high = middle
        else:
            low = middle + 1
    for place in range(low, min(count, low + MAX_GAPS)):
        start = max(ready, timelines.end[line, place - 1]) if place > 0 else ready
        if start + seconds <= timelines.start[line, place]:
            return place, start
    return count, max(ready, timelines.end[line, count - 1]) if count > 0 else ready


@compiled_part
def _insert(timelines: _Timelines, line: int, place: int, start: float) -> None:
    """Makes room at a position of a timeline, for an op that starts then."""
    for index in range(timelines.num_ops[line], place, -1):
        timelines.start[line, index] = timelines.start[line, index - 1]
        timelines.end[line, index] = timelines.end[line, index - 1]
    timelines.start[line, place] = start
    timelines.num_ops[line] += 1

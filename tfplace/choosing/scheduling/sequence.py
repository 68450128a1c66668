"""Edges that make a device start its ops in a wanted sequence: few, and none that closes a cycle.

A wanted schedule says when each op starts. Where first come, first served would start an op
earlier, it is made to wait for the op before it; all others start in their turn by themselves.
Every edge leads from an op to one that starts later on the same device, so that all edges lead
forward in the schedule and no cycle can close.
"""

import heapq
from collections.abc import Container, Iterable

import numpy as np

from graphs.graph_edges import row_starts
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from tfplace.choosing.scheduling.anchors import Anchors, Bools
from tfplace.choosing.scheduling.edges import OrderEdges, order_edges
from tfplace.simulation.schedule import Schedule


def sequence_edges(problem: Problem, wanted: Schedule, anchors: Anchors) -> OrderEdges:
    """The edges that keep to a schedule of the problem, where the simulator would not.

    Devices that run several ops at once are left alone: an edge waits for an op's end, which says
    nothing of which of two starts first.
    """
    ready = ready_seconds(problem, wanted, ~anchors.is_real)
    sequence = in_turn(wanted)
    held: set[int] = set()
    for device in np.flatnonzero(problem.device_slots == 1):
        ops = sequence[wanted.device_of_op[sequence] == device]
        held |= _held_back(ops.tolist(), ready, wanted)
    return edges_in_turn(problem, wanted.device_of_op, sequence.tolist(), anchors, held)


def in_turn(wanted: Schedule) -> LongArray:
    """i8[N]: the ops as a schedule starts them."""
    return np.lexsort((wanted.op_end, wanted.op_start))


def edges_in_turn(
    problem: Problem,
    device_of_op: IntArray,
    sequence: Iterable[int],
    anchors: Anchors,
    held: Container[int] | None = None,
) -> OrderEdges:
    """The edges by which ops start in a sequence, on each device that runs one at a time.

    Args:
      held: the ops that wait for the one before them; None for all.
    """
    before: list[int] = []
    after: list[int] = []
    last_in: dict[tuple[int, int], int] = {}
    alone = problem.device_slots[device_of_op] == 1
    for op in sequence:
        place = int(device_of_op[op]), int(anchors.body_of_op[op])
        if not anchors.is_real[op] or not alone[op]:
            continue
        if (held is None or op in held) and place in last_in:
            before.append(last_in[place])
            after.append(op)
        if anchors.may_hold[op]:
            last_in[place] = op
    return order_edges(before, after)


def _held_back(ops: list[int], ready: FloatArray, wanted: Schedule) -> set[int]:
    """The ops of a device that first come, first served would start earlier than wanted."""
    arriving = sorted((float(ready[op]), op) for op in ops)
    waiting: list[tuple[float, int]] = []
    started: set[int] = set()
    held: set[int] = set()
    number = 0
    for op in ops:
        now = float(wanted.op_start[op])
        while number < len(arriving) and arriving[number][0] <= now:
            if arriving[number][1] not in started:
                heapq.heappush(waiting, arriving[number])
            number += 1
        started.add(op)
        # An op that is held back comes into the queue only now, behind all that waits there.
        turn = (now if op in held else float(ready[op]), op)
        while waiting and waiting[0] <= turn:
            _, other = heapq.heappop(waiting)
            if other not in started:
                held.add(other)
    return held


def ready_seconds(problem: Problem, schedule: Schedule, is_free: Bools) -> FloatArray:
    """f8[N]: when all that an op uses is on its device.

    Args:
      is_free: bool[N] ops that nothing holds back: what they make is there as soon as can be,
        however late the schedule starts them.
    """
    graph, device, size = problem.graph, schedule.device_of_op, problem.num_devices
    by_op = np.argsort(graph.use_op, kind="stable")
    producer = graph.tensor_producer[graph.use_tensor]
    transfers, arrival = schedule.transfers, np.zeros(graph.num_tensors * size)
    arrival[transfers.tensor.astype(np.int64) * size + transfers.target] = transfers.arrival
    there = np.where(  # when each op's tensor is on its device
        device[producer] == device[graph.use_op],
        schedule.op_end[producer],
        arrival[graph.use_tensor.astype(np.int64) * size + device[graph.use_op]],
    )
    after_end = (there - schedule.op_end[producer])[by_op].tolist()
    producers = producer[by_op].tolist()
    seconds = problem.op_seconds[np.arange(graph.num_ops), device]
    row = row_starts(graph.use_op, graph.num_ops).tolist()
    ready, end = [0.0] * graph.num_ops, schedule.op_end.tolist()
    for op in range(graph.num_ops):
        uses = range(row[op], row[op + 1])
        ready[op] = max((end[producers[use]] + after_end[use] for use in uses), default=0.0)
        if is_free[op]:
            end[op] = min(end[op], ready[op] + seconds[op])
    return np.array(ready)

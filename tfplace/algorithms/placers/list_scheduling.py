"""List scheduling, compiled: earliest task first, with favourite children, and HEFT.

Both build a schedule op by op under an uncontended network: a tensor made on e at time t is on
d at t + bytes / bandwidth[e, d] + latency[e, d], whatever else is moved. The simulator, which
knows of channels, judges the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.memory import op_bytes_estimate, sum_by_group
from tfplace.grouping.quotient import BoolArray, colocation_units
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator

# Of the ready ops, m-ETF and m-SCT compare the so many that have been ready longest: graphs of
# 100,000 ops can have 50,000 ready at once, and comparing all of them each time took 63 s.
MAX_COMPARED = 1000

# HEFT looks into this many gaps of a device before it appends.
MAX_GAPS = 1000

# HEFT keeps a timeline for each slot; a device with more slots than this counts as this many.
MAX_TIMELINES = 8


class ListProblem(NamedTuple):
    """What a list scheduler needs beside the simulator's arrays.

    Attributes:
      allowed: bool[N, D].
      unit_of_op: i4[N] colocation units: the first op that is placed decides for all.
      unit_bytes: f8[G] estimated bytes, taken from a device's room by the unit's first op.
      room: f8[D] usable bytes.
    """

    allowed: BoolArray
    unit_of_op: IntArray
    unit_bytes: FloatArray
    room: FloatArray


def list_problem(simulator: Simulator, only_working: bool) -> ListProblem:
    """Lays out a problem for list scheduling.

    Args:
      simulator: of the problem.
      only_working: whether ops that can lie on working devices (GPUs) are kept off the others;
        a rule that looks only at start times would fill the slow, idle CPU.
    """
    problem = simulator.problem
    allowed = problem.allowed().copy()  # compiled code is compiled again for read-only arrays
    if only_working:
        working = np.zeros(problem.num_devices, dtype=bool)
        working[working_devices(problem)] = True
        can_work = (allowed & working).any(axis=1)
        allowed[can_work] &= working
    units = colocation_units(problem.graph)
    unit_bytes = sum_by_group(units, op_bytes_estimate(simulator))
    return ListProblem(allowed, units.group_of_op, unit_bytes, problem.usable_bytes())


class _ListState(NamedTuple):
    """A schedule that grows.

    Attributes:
      device_of_op: i4[N] -1 until the op is placed.
      op_end: f8[N] seconds.
      arrival: f8[N, D] when a ready op's last input is on each device.
      unit_device: i4[G] -1 until the unit's first op is placed.
      room: f8[D] bytes.
      slot_free: f8[D, S] seconds.
      kept_for: i4[D] the op that a device is kept for, -1 for none; kept_until: f8[D] seconds.
      pending: i4[N] inputs whose producer is not placed.
      ready: i4[N] ops without such inputs, in the order in which they became so.
      compared: i4[MAX_COMPARED] those among them that may be next, in any order.
    """

    device_of_op: IntArray
    op_end: FloatArray
    arrival: FloatArray
    unit_device: IntArray
    room: FloatArray
    slot_free: FloatArray
    kept_for: IntArray
    kept_until: FloatArray
    pending: IntArray
    ready: IntArray
    compared: IntArray


def earliest_task_first(
    arrays: SimulationArrays, problem: ListProblem, favourite: IntArray
) -> IntArray:
    """Repeatedly starts the op and device with the earliest start among all ready ops.

    Args:
      arrays: the problem.
      problem: constraints.
      favourite: i4[N] each op's favourite child, -1 for none. After an op, its device is kept
        for its favourite child until that could start elsewhere, unless another op is urgent:
        its inputs would be there by now on any device.

    Returns:
      i4[N] devices.
    """
    num_ops, num_devices = problem.allowed.shape
    state = _ListState(
        device_of_op=np.full(num_ops, -1, dtype=np.int32),
        op_end=np.zeros(num_ops),
        arrival=np.zeros((num_ops, num_devices)),
        unit_device=np.full(len(problem.unit_bytes), -1, dtype=np.int32),
        room=problem.room.copy(),
        slot_free=np.zeros((num_devices, int(arrays.slots.max(initial=1)))),
        kept_for=np.full(num_devices, -1, dtype=np.int32),
        kept_until=np.zeros(num_devices),
        pending=arrays.num_inputs.copy(),
        ready=np.empty(num_ops, dtype=np.int32),
        compared=np.empty(MAX_COMPARED, dtype=np.int32),
    )
    _earliest_task_first(arrays, problem, favourite, state)
    return state.device_of_op


@compiled
def _earliest_task_first(
    arrays: SimulationArrays, problem: ListProblem, favourite: IntArray, state: _ListState
) -> None:
    num_ready = 0
    for op in range(len(state.pending)):
        if state.pending[op] == 0:
            state.ready[num_ready] = op
            num_ready += 1
    next_ready, num_compared = 0, 0
    while next_ready < num_ready or num_compared > 0:
        while next_ready < num_ready and num_compared < MAX_COMPARED:
            state.compared[num_compared] = state.ready[next_ready]
            num_compared += 1
            next_ready += 1
        place, device, start = _earliest(arrays, problem, state, num_compared)
        op = state.compared[place]
        num_compared -= 1
        state.compared[place] = state.compared[num_compared]
        _take_room(problem, state, op, device)
        end = start + arrays.op_seconds[op, device]
        state.device_of_op[op] = device
        state.op_end[op] = end
        state.slot_free[device, _free_slot(arrays, state, device)] = end
        for other in range(len(state.kept_for)):
            if state.kept_for[other] == op:
                state.kept_for[other] = -1
        state.kept_for[device] = favourite[op]
        if favourite[op] >= 0:
            state.kept_until[device] = end + _longest_move(arrays, op, favourite[op], device)
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
                user = arrays.use_op[index]
                state.pending[user] -= 1
                if state.pending[user] == 0:
                    for where in range(len(state.room)):
                        state.arrival[user, where] = _arrival(arrays, state, user, where)
                    state.ready[num_ready] = user
                    num_ready += 1


@compiled
def _earliest(
    arrays: SimulationArrays, problem: ListProblem, state: _ListState, num_compared: int
) -> tuple[int, int, float]:
    """Position in `compared`, device and start of the earliest start.

    Ties go to the op that the device is kept for, then to the first op, then to the first device.
    """
    best_place, best_device, best_start = -1, -1, np.inf
    best_kept = False
    for place in range(num_compared):
        op = state.compared[place]
        latest = 0.0
        for device in range(len(state.room)):
            if problem.allowed[op, device]:
                latest = max(latest, state.arrival[op, device])
        for device in range(len(state.room)):
            if not _may_take(problem, state, op, device):
                continue
            free = state.slot_free[device, _free_slot(arrays, state, device)]
            start = max(state.arrival[op, device], free)
            kept = state.kept_for[device] == op
            if state.kept_for[device] >= 0 and not kept and latest > free:
                start = max(start, state.kept_until[device])
            better = start < best_start
            if start == best_start and best_place >= 0:
                better = (kept and not best_kept) or (
                    kept == best_kept and op < state.compared[best_place]
                )
            if better or best_place < 0:
                best_place, best_device, best_start, best_kept = place, device, start, kept
    return best_place, best_device, best_start


@compiled
def _free_slot(arrays: SimulationArrays, state: _ListState, device: int) -> int:
    """The slot of a device that is free first."""
    first = 0
    for slot in range(1, arrays.slots[device]):
        if state.slot_free[device, slot] < state.slot_free[device, first]:
            first = slot
    return first


@compiled
def _may_take(problem: ListProblem, state: _ListState, op: int, device: int) -> bool:
    """Whether an op may go to a device: kernel, pin, its unit's device, and room.

    Where no device has room, only the allowed one that has most may take it.
    """
    unit = problem.unit_of_op[op]
    if state.unit_device[unit] >= 0:
        return state.unit_device[unit] == device
    if not problem.allowed[op, device]:
        return False
    if state.room[device] >= problem.unit_bytes[unit]:
        return True
    for other in range(len(state.room)):
        if problem.allowed[op, other] and (
            state.room[other] > state.room[device]
            or (state.room[other] == state.room[device] and other < device)
        ):
            return False
    return True


@compiled
def _take_room(problem: ListProblem, state: _ListState, op: int, device: int) -> None:
    """The first op of a unit decides for all of it, and takes its memory."""
    unit = problem.unit_of_op[op]
    if state.unit_device[unit] < 0:
        state.unit_device[unit] = device
        state.room[device] -= problem.unit_bytes[unit]


@compiled
def _longest_move(arrays: SimulationArrays, op: int, child: int, device: int) -> float:
    """Seconds after which what an op made for a child is on every other device."""
    longest = 0.0
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            if arrays.use_op[index] == child:
                for other in range(len(arrays.slots)):
                    if other != device:
                        longest = max(longest, _move_seconds(arrays, tensor, device, other))
    return longest


@compiled
def _move_seconds(arrays: SimulationArrays, tensor: int, source: int, target: int) -> float:
    """Seconds of a transfer on an idle link; 0 on one device."""
    if source == target:
        return 0.0
    return (
        arrays.tensor_bytes[tensor] / arrays.bandwidth[source, target]
        + arrays.latency[source, target]
    )


@compiled
def _arrival(arrays: SimulationArrays, state: _ListState, op: int, device: int) -> float:
    """When the last input of an op is on a device; its producers are placed."""
    latest = 0.0
    for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
        tensor = arrays.input_tensor[index]
        producer = arrays.producer[tensor]
        source = state.device_of_op[producer]
        there = state.op_end[producer] + _move_seconds(arrays, tensor, source, device)
        latest = max(latest, there)
    return latest


class _Timelines(NamedTuple):
    """What runs when on each slot, L of them, at most N ops each.

    Attributes:
      device: i4[L].
      start, end: f8[L, N] seconds, ascending.
      num_ops: i8[L].
    """

    device: IntArray
    start: FloatArray
    end: FloatArray
    num_ops: LongArray


def earliest_finish(arrays: SimulationArrays, problem: ListProblem, order: IntArray) -> IntArray:
    """HEFT's second phase: each op, in a given order, to the device where it ends first.

    An op may take a gap between ops that were placed before it.

    Args:
      arrays: the problem.
      problem: constraints.
      order: i4[N] a topological order, most urgent first.

    Returns:
      i4[N] devices.
    """
    num_ops, num_devices = problem.allowed.shape
    num_slots = np.minimum(arrays.slots, MAX_TIMELINES)
    device = np.repeat(np.arange(num_devices, dtype=np.int32), num_slots)
    timelines = _Timelines(
        device,
        np.empty((len(device), num_ops)),
        np.empty((len(device), num_ops)),
        np.zeros(len(device), dtype=np.int64),
    )
    no_times, no_ops = np.empty(0), np.empty(0, dtype=np.int32)
    state = _ListState(
        device_of_op=np.full(num_ops, -1, dtype=np.int32),
        op_end=np.zeros(num_ops),
        arrival=np.empty((0, 0)),
        unit_device=np.full(len(problem.unit_bytes), -1, dtype=np.int32),
        room=problem.room.copy(),
        slot_free=np.empty((0, 0)),
        kept_for=no_ops,
        kept_until=no_times,
        pending=no_ops,
        ready=no_ops,
        compared=np.empty(0, dtype=np.int32),
    )
    _earliest_finish(arrays, problem, order, state, timelines)
    return state.device_of_op


@compiled
def _earliest_finish(
    arrays: SimulationArrays,
    problem: ListProblem,
    order: IntArray,
    state: _ListState,
    timelines: _Timelines,
) -> None:
    for position in range(len(order)):
        op = order[position]
        best_line, best_place, best_end = -1, 0, np.inf
        for line in range(len(timelines.device)):
            device = timelines.device[line]
            if not _may_take(problem, state, op, device):
                continue
            seconds = arrays.op_seconds[op, device]
            place, start = _gap(timelines, line, _arrival(arrays, state, op, device), seconds)
            if start + seconds < best_end or best_line < 0:
                best_line, best_place, best_end = line, place, start + seconds
        device = timelines.device[best_line]
        _take_room(problem, state, op, device)
        state.device_of_op[op] = device
        state.op_end[op] = best_end
        _insert(timelines, best_line, best_place, best_end - arrays.op_seconds[op, device])
        timelines.end[best_line, best_place] = best_end


@compiled
def _gap(timelines: _Timelines, line: int, ready: float, seconds: float) -> tuple[int, float]:
    """The first gap of a timeline that takes an op: its position and the op's start."""
    count = timelines.num_ops[line]
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


@compiled
def _insert(timelines: _Timelines, line: int, place: int, start: float) -> None:
    """Makes room at a position of a timeline, for an op that starts then."""
    for index in range(timelines.num_ops[line], place, -1):
        timelines.start[line, index] = timelines.start[line, index - 1]
        timelines.end[line, index] = timelines.end[line, index - 1]
    timelines.start[line, place] = start
    timelines.num_ops[line] += 1

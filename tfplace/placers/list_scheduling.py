"""List scheduling, compiled: earliest task first, with favourite children, and HEFT.

Both build a schedule op by op under an uncontended network: a tensor made on e at time t is on
d at t + bytes / bandwidth[e, d] + latency[e, d], whatever else is moved. The simulator, which
knows of channels, judges the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from graphs.op_graph import FloatArray, IntArray
from tfplace.evaluation.event_heap import compiled
from tfplace.evaluation.simulation_arrays import SimulationArrays
from tfplace.evaluation.simulator import Simulator
from tfplace.grouping.quotient import BoolArray, colocation_units
from tfplace.placers.legal import working_devices
from tfplace.placers.memory import op_bytes_estimate, sum_by_group

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
    allowed = problem.allowed()
    if only_working:
        working = np.zeros(problem.num_devices, dtype=bool)
        working[working_devices(problem)] = True
        can_work = (allowed & working).any(axis=1)
        allowed[can_work] &= working
    units = colocation_units(problem.graph)
    unit_bytes = sum_by_group(units, op_bytes_estimate(simulator))
    return ListProblem(allowed, units.group_of_op, unit_bytes, problem.usable_bytes())


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
    device_of_op = np.full(len(problem.allowed), -1, dtype=np.int32)
    _earliest_task_first(arrays, problem, favourite, device_of_op)
    return device_of_op


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _earliest_task_first(
    arrays: SimulationArrays, problem: ListProblem, favourite: IntArray, device_of_op: IntArray
) -> None:
    num_ops, num_devices = problem.allowed.shape
    arrival = np.zeros((num_ops, num_devices))
    op_end = np.zeros(num_ops)
    pending = arrays.num_inputs.copy()
    unit_device = np.full(len(problem.unit_bytes), -1, dtype=np.int32)
    room = problem.room.copy()
    slot_free = np.zeros((num_devices, arrays.slots.max()))
    kept_for = np.full(num_devices, -1, dtype=np.int32)
    kept_until = np.zeros(num_devices)
    ready = np.empty(num_ops, dtype=np.int32)
    num_ready = 0
    for op in range(num_ops):
        if pending[op] == 0:
            ready[num_ready] = op
            num_ready += 1
    while num_ready > 0:
        free = np.empty(num_devices)
        for device in range(num_devices):
            free[device] = slot_free[device, : arrays.slots[device]].min()
        place, device, start = _earliest(
            problem, ready[:num_ready], arrival, free, unit_device, room, kept_for, kept_until
        )
        op = ready[place]
        num_ready -= 1
        ready[place] = ready[num_ready]
        unit = problem.unit_of_op[op]
        if unit_device[unit] < 0:
            unit_device[unit] = device
            room[device] -= problem.unit_bytes[unit]
        device_of_op[op] = device
        op_end[op] = start + arrays.op_seconds[op, device]
        slot = slot_free[device, : arrays.slots[device]].argmin()
        slot_free[device, slot] = op_end[op]
        child = favourite[op]
        kept_for[device] = child
        if child >= 0:
            kept_until[device] = op_end[op] + _longest_move(arrays, op, child, device)
        for other in range(num_devices):
            if kept_for[other] == op:
                kept_for[other] = -1
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
                user = arrays.use_op[index]
                pending[user] -= 1
                if pending[user] == 0:
                    _find_arrivals(arrays, user, device_of_op, op_end, arrival[user])
                    ready[num_ready] = user
                    num_ready += 1


@compiled
def _earliest(
    problem: ListProblem,
    ready: IntArray,
    arrival: FloatArray,
    free: FloatArray,
    unit_device: IntArray,
    room: FloatArray,
    kept_for: IntArray,
    kept_until: FloatArray,
) -> tuple[int, int, float]:
    """Position in `ready`, device and start of the earliest start; ties by op, then device.

    An op for which no device has room takes the allowed one that has most.
    """
    best_place, best_device, best_start = -1, -1, np.inf
    best_kept = False
    for place in range(len(ready)):
        op = ready[place]
        unit = problem.unit_of_op[op]
        latest = 0.0
        fits = False
        for device in range(len(free)):
            if problem.allowed[op, device]:
                latest = max(latest, arrival[op, device])
                fits = fits or room[device] >= problem.unit_bytes[unit]
        for device in range(len(free)):
            if not problem.allowed[op, device]:
                continue
            if unit_device[unit] >= 0:
                if unit_device[unit] != device:
                    continue
            elif fits:
                if room[device] < problem.unit_bytes[unit]:
                    continue
            elif not _has_most_room(problem.allowed[op], room, device):
                continue
            start = max(arrival[op, device], free[device])
            kept = kept_for[device] == op
            if kept_for[device] >= 0 and not kept and latest > free[device]:
                start = max(start, kept_until[device])
            better = start < best_start
            if start == best_start:
                better = (kept and not best_kept) or (
                    kept == best_kept and best_place >= 0 and op < ready[best_place]
                )
            if better or best_place < 0:
                best_place, best_device, best_start, best_kept = place, device, start, kept
    return best_place, best_device, best_start


@compiled
def _has_most_room(allowed: BoolArray, room: FloatArray, device: int) -> bool:
    """Whether no allowed device has more room, nor an earlier one as much."""
    for other in range(len(room)):
        if allowed[other] and (
            room[other] > room[device] or (room[other] == room[device] and other < device)
        ):
            return False
    return True


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
def _find_arrivals(
    arrays: SimulationArrays,
    op: int,
    device_of_op: IntArray,
    op_end: FloatArray,
    arrival: FloatArray,
) -> None:
    """When the last input of an op is on each device, into f8[D]."""
    for device in range(len(arrival)):
        arrival[device] = 0.0
    for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
        tensor = arrays.input_tensor[index]
        producer = arrays.producer[tensor]
        source = device_of_op[producer]
        for device in range(len(arrival)):
            there = op_end[producer] + _move_seconds(arrays, tensor, source, device)
            arrival[device] = max(arrival[device], there)


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
    device_of_op = np.full(len(order), -1, dtype=np.int32)
    _earliest_finish(arrays, problem, order, device_of_op)
    return device_of_op


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _earliest_finish(
    arrays: SimulationArrays, problem: ListProblem, order: IntArray, device_of_op: IntArray
) -> None:
    num_ops, num_devices = problem.allowed.shape
    num_slots = np.minimum(arrays.slots, MAX_TIMELINES)
    first_slot = np.cumsum(num_slots) - num_slots
    starts = np.empty((num_slots.sum(), num_ops))
    ends = np.empty((num_slots.sum(), num_ops))
    counts = np.zeros(num_slots.sum(), dtype=np.int64)
    unit_device = np.full(len(problem.unit_bytes), -1, dtype=np.int32)
    room = problem.room.copy()
    op_end = np.zeros(num_ops)
    arrival = np.zeros(num_devices)
    for op in order:
        _find_arrivals(arrays, op, device_of_op, op_end, arrival)
        unit = problem.unit_of_op[op]
        fits = (room[problem.allowed[op]] >= problem.unit_bytes[unit]).any()
        best_device, best_slot, best_place, best_end = -1, -1, -1, np.inf
        for device in range(num_devices):
            if not problem.allowed[op, device]:
                continue
            if unit_device[unit] >= 0:
                if unit_device[unit] != device:
                    continue
            elif fits:
                if room[device] < problem.unit_bytes[unit]:
                    continue
            elif not _has_most_room(problem.allowed[op], room, device):
                continue
            seconds = arrays.op_seconds[op, device]
            for slot in range(first_slot[device], first_slot[device] + num_slots[device]):
                place, start = _gap(
                    starts[slot], ends[slot], counts[slot], arrival[device], seconds
                )
                if start + seconds < best_end or best_device < 0:
                    best_device, best_slot = device, slot
                    best_place, best_end = place, start + seconds
        if unit_device[unit] < 0:
            unit_device[unit] = best_device
            room[best_device] -= problem.unit_bytes[unit]
        device_of_op[op] = best_device
        op_end[op] = best_end
        _insert(starts[best_slot], ends[best_slot], counts[best_slot], best_place)
        starts[best_slot, best_place] = best_end - arrays.op_seconds[op, best_device]
        ends[best_slot, best_place] = best_end
        counts[best_slot] += 1


@compiled
def _gap(
    starts: FloatArray, ends: FloatArray, count: int, ready: float, seconds: float
) -> tuple[int, float]:
    """The first gap of a timeline that takes an op: its position and the op's start."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > ready:
            high = middle
        else:
            low = middle + 1
    for place in range(low, min(count, low + MAX_GAPS)):
        start = max(ready, ends[place - 1]) if place > 0 else ready
        if start + seconds <= starts[place]:
            return place, start
    return count, max(ready, ends[count - 1]) if count > 0 else ready


@compiled
def _insert(starts: FloatArray, ends: FloatArray, count: int, place: int) -> None:
    """Makes room at a position of a timeline."""
    for index in range(count, place, -1):
        starts[index] = starts[index - 1]
        ends[index] = ends[index - 1]

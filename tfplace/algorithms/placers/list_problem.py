"""What list schedulers share: constraints, memory, and when tensors arrive; compiled.

They build a schedule op by op under an uncontended network: a tensor made on e at time t is on
d at t + bytes / bandwidth[e, d] + latency[e, d], whatever else is moved. The simulator, which
knows of channels, judges the result.
"""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, IntArray
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.memory import op_bytes_estimate
from tfplace.grouping.quotient import BoolArray, colocation_units, group_sums
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator


class ListProblem(NamedTuple):
    """What a list scheduler needs beside the simulator's arrays.

    Attributes:
      allowed: bool[N, D].
      unit_of_op: i4[N] colocation units: the first op that is placed decides for all.
      unit_bytes: f8[G] estimated bytes, taken from a device's room by the unit's first op.
      usable: f8[D] bytes.
    """

    allowed: BoolArray
    unit_of_op: IntArray
    unit_bytes: FloatArray
    usable: FloatArray


class PartialSchedule(NamedTuple):
    """The ops that are placed so far."""

    device_of_op: IntArray  # i4[N] -1 until the op is placed
    op_end: FloatArray  # f8[N] seconds, of placed ops
    unit_device: IntArray  # i4[G] -1 until the unit's first op is placed
    room: FloatArray  # f8[D] bytes that are left


def list_problem(simulator: Simulator, only_working: bool) -> ListProblem:
    """Lays out a problem for list scheduling.

    Args:
      only_working: whether ops that can lie on working devices (GPUs) are kept off the others;
        a rule that looks only at start times would fill the slow, idle CPU.
    """
    problem = simulator.problem
    allowed = problem.allowed().copy()
    if only_working:
        working = np.zeros(problem.num_devices, dtype=bool)
        working[working_devices(problem)] = True
        can_work = (allowed & working).any(axis=1)
        allowed[can_work] &= working
    units = colocation_units(problem.graph)
    unit_bytes = group_sums(op_bytes_estimate(simulator), units)
    return ListProblem(allowed, units.group_of_op, unit_bytes, problem.usable_bytes())


def empty_schedule(problem: ListProblem) -> PartialSchedule:
    """Nothing is placed."""
    num_ops = len(problem.allowed)
    return PartialSchedule(
        device_of_op=np.full(num_ops, -1, dtype=np.int32),
        op_end=np.zeros(num_ops),
        unit_device=np.full(len(problem.unit_bytes), -1, dtype=np.int32),
        room=problem.usable.copy(),
    )


@compiled_part
def may_take(problem: ListProblem, schedule: PartialSchedule, op: int, device: int) -> bool:
    """Whether an op may go to a device: kernel, pin, its unit's device, and room.

    Where no device has room, only the allowed one that has most may take it: every op has to lie
    somewhere, and too full a placement is repaired afterwards.
    """
    unit = problem.unit_of_op[op]
    if schedule.unit_device[unit] >= 0:
        return schedule.unit_device[unit] == device
    if not problem.allowed[op, device]:
        return False
    if schedule.room[device] >= problem.unit_bytes[unit]:
        return True
    for other in range(len(schedule.room)):
        if problem.allowed[op, other] and (
            schedule.room[other] > schedule.room[device]
            or (schedule.room[other] == schedule.room[device] and other < device)
        ):
            return False
    return True


@compiled_part
def place_op(
    problem: ListProblem, schedule: PartialSchedule, op: int, device: int, end: float
) -> None:
    """The first op of a unit decides for all of it, and takes its memory."""
    unit = problem.unit_of_op[op]
    if schedule.unit_device[unit] < 0:
        schedule.unit_device[unit] = device
        schedule.room[device] -= problem.unit_bytes[unit]
    schedule.device_of_op[op] = device
    schedule.op_end[op] = end


@compiled_part
def move_seconds(arrays: SimulationArrays, tensor: int, source: int, target: int) -> float:
    """Seconds of a transfer on an idle link; 0 on one device."""
    if source == target:
        return 0.0
    return (
        arrays.tensor_bytes[tensor] / arrays.bandwidth[source, target]
        + arrays.latency[source, target]
    )


@compiled_part
def arrival(arrays: SimulationArrays, schedule: PartialSchedule, op: int, device: int) -> float:
    """When the last input of an op is on a device; its producers are placed."""
    latest = 0.0
    for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
        tensor = arrays.input_tensor[index]
        producer = arrays.producer[tensor]
        source = schedule.device_of_op[producer]
        there = schedule.op_end[producer] + move_seconds(arrays, tensor, source, device)
        latest = max(latest, there)
    return latest

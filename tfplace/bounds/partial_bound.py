"""How fast a partial placement can become: for branch and bound on small graphs, compiled.

Paths pay each link's own transfer time wherever both ends are known, and the cheapest that is
open elsewhere. On every device the ops that lie there for certain, and on every channel the
transfers that happen for certain, run one after another between what must come before and after
them: for any a and b, those with head >= a and tail >= b need a + their seconds + b.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray, colocation_units, group_allowed
from tfplace.simulation.arrays import simulation_arrays


class PartialProblem(NamedTuple):
    """A problem, a partial placement of it, and scratch.

    Attributes:
      op_seconds: f8[N, D].
      tensor_row: i4[N+1]; producer: i4[T]; tensor_bytes: i8[T]; use_row: i4[T+1]; use_op: i4[U];
      input_row: i4[N+1]; input_tensor: i4[U]: as in SimulationArrays.
      persistent_bytes: i8[N].
      slots: i4[D]; latency, bandwidth: f8[D, D]; channels: i4[D, D, 2].
      unit_of_op: i4[N].
      allowed: bool[U, D] of units.
      device_of_unit: i8[U], -1 where it is open.
      end: f8[N, D] how soon the op ends there; rest: f8[N, D] from its start to the step's end.
      jobs: f8[J, 3] head, seconds and tail of what one machine has to do.
    """

    op_seconds: FloatArray
    tensor_row: IntArray
    producer: IntArray
    tensor_bytes: LongArray
    use_row: IntArray
    use_op: IntArray
    input_row: IntArray
    input_tensor: IntArray
    persistent_bytes: LongArray
    slots: IntArray
    latency: FloatArray
    bandwidth: FloatArray
    channels: IntArray
    unit_of_op: IntArray
    allowed: BoolArray
    device_of_unit: LongArray
    end: FloatArray
    rest: FloatArray
    jobs: FloatArray


def partial_problem(problem: Problem) -> PartialProblem:
    """The problem with nothing placed."""
    arrays = simulation_arrays(problem)
    units = colocation_units(problem.graph)
    num_jobs = max(problem.num_ops, arrays.most_transfers, 1)
    return PartialProblem(
        arrays.op_seconds,
        arrays.tensor_row,
        arrays.producer,
        arrays.tensor_bytes,
        arrays.use_row,
        arrays.use_op,
        arrays.input_row,
        arrays.input_tensor,
        arrays.persistent_bytes,
        arrays.slots,
        arrays.latency,
        arrays.bandwidth,
        arrays.channels,
        unit_of_op=units.group_of_op,
        allowed=group_allowed(problem.allowed(), units),
        device_of_unit=np.full(units.num_groups, -1, dtype=np.int64),
        end=np.zeros(arrays.op_seconds.shape),
        rest=np.zeros(arrays.op_seconds.shape),
        jobs=np.zeros((num_jobs, 3)),
    )


@compiled
def partial_bound(partial: PartialProblem, usable: FloatArray, limit: float) -> float:
    """Seconds that every completion takes; inf where none can fit.

    Args:
      partial: with its present placement.
      usable: f8[D] bytes.
      limit: what is known to be reached; a bound at or above it may be returned at once.
    """
    bound = _work(partial, usable)
    if bound >= limit:
        return bound
    _soonest_ends(partial)
    _least_rests(partial)
    num_ops, num_devices = partial.op_seconds.shape
    for op in range(num_ops):
        least = np.inf
        for device in range(num_devices):
            if _may_lie(partial, op, device):
                through = partial.end[op, device] + partial.rest[op, device]
                least = min(least, through - partial.op_seconds[op, device])
        bound = max(bound, least)
    for device in range(num_devices):
        if bound >= limit:
            return bound
        bound = max(bound, _one_machine(partial, _list_ops(partial, device)))
    num_channels = 0
    for source in range(num_devices):
        for target in range(num_devices):
            for side in range(2):
                num_channels = max(num_channels, partial.channels[source, target, side] + 1)
    for channel in range(num_channels):
        if bound >= limit:
            return bound
        bound = max(bound, _one_machine(partial, _list_transfers(partial, channel)))
    return bound


@compiled
def _may_lie(partial: PartialProblem, op: int, device: int) -> bool:
    """Whether the op can still come to lie on the device."""
    unit = partial.unit_of_op[op]
    chosen = partial.device_of_unit[unit]
    return chosen == device or (chosen < 0 and partial.allowed[unit, device])


@compiled
def _work(partial: PartialProblem, usable: FloatArray) -> float:
    """All seconds spread over all slots; inf where persistent bytes don't fit."""
    num_ops, num_devices = partial.op_seconds.shape
    total, slots = 0.0, 0.0
    for op in range(num_ops):
        least = np.inf
        for device in range(num_devices):
            if _may_lie(partial, op, device):
                least = min(least, partial.op_seconds[op, device])
        total += least
    for device in range(num_devices):
        slots += partial.slots[device]
        held = 0
        for op in range(num_ops):
            if partial.device_of_unit[partial.unit_of_op[op]] == device:
                held += partial.persistent_bytes[op]
        if held > usable[device]:
            return np.inf
    return total / slots


@compiled
def _moved(partial: PartialProblem, tensor: int, source: int, target: int) -> float:
    """Seconds until a tensor is there, nothing else being moved."""
    size = partial.tensor_bytes[tensor]
    return size / partial.bandwidth[source, target] + partial.latency[source, target]


@compiled
def _soonest_ends(partial: PartialProblem) -> None:
    """Fills partial.end in graph order."""
    num_ops, num_devices = partial.op_seconds.shape
    for op in range(num_ops):
        for device in range(num_devices):
            partial.end[op, device] = np.inf
            if not _may_lie(partial, op, device):
                continue
            start = 0.0
            for index in range(partial.input_row[op], partial.input_row[op + 1]):
                tensor = partial.input_tensor[index]
                made = partial.producer[tensor]
                there = partial.end[made, device]
                for other in range(num_devices):
                    if other != device and partial.end[made, other] < there:
                        moved = _moved(partial, tensor, other, device)
                        there = min(there, partial.end[made, other] + moved)
                start = max(start, there)
            partial.end[op, device] = start + partial.op_seconds[op, device]


@compiled
def _least_rests(partial: PartialProblem) -> None:
    """Fills partial.rest against graph order."""
    num_ops, num_devices = partial.op_seconds.shape
    for op in range(num_ops - 1, -1, -1):
        for device in range(num_devices):
            partial.rest[op, device] = np.inf
            if not _may_lie(partial, op, device):
                continue
            after = 0.0
            for tensor in range(partial.tensor_row[op], partial.tensor_row[op + 1]):
                for index in range(partial.use_row[tensor], partial.use_row[tensor + 1]):
                    user = partial.use_op[index]
                    least = partial.rest[user, device]
                    for other in range(num_devices):
                        if other != device and partial.rest[user, other] < least:
                            moved = _moved(partial, tensor, device, other)
                            least = min(least, partial.rest[user, other] + moved)
                    after = max(after, least)
            partial.rest[op, device] = after + partial.op_seconds[op, device]


@compiled
def _list_ops(partial: PartialProblem, device: int) -> int:
    """Lists the ops that lie on a device as jobs; their number."""
    count = 0
    for op in range(len(partial.op_seconds)):
        if partial.device_of_unit[partial.unit_of_op[op]] == device:
            seconds = partial.op_seconds[op, device]
            head = partial.end[op, device] - seconds
            tail = partial.rest[op, device] - seconds
            count = _add_job(partial, count, head, seconds / partial.slots[device], tail)
    return count


@compiled
def _list_transfers(partial: PartialProblem, channel: int) -> int:
    """Lists the transfers that are certain to hold a channel as jobs; their number."""
    num_devices = len(partial.slots)
    count = 0
    for tensor in range(len(partial.producer)):
        made = partial.producer[tensor]
        source = partial.device_of_unit[partial.unit_of_op[made]]
        if source < 0:
            continue
        for target in range(num_devices):
            sides = partial.channels[source, target]
            if target == source or (sides[0] != channel and sides[1] != channel):
                continue
            after = -1.0
            for index in range(partial.use_row[tensor], partial.use_row[tensor + 1]):
                user = partial.use_op[index]
                if partial.device_of_unit[partial.unit_of_op[user]] == target:
                    after = max(after, partial.rest[user, target])
            if after >= 0.0:
                hold = partial.tensor_bytes[tensor] / partial.bandwidth[source, target]
                tail = partial.latency[source, target] + after
                count = _add_job(partial, count, partial.end[made, source], hold, tail)
    return count


@compiled
def _add_job(partial: PartialProblem, count: int, head: float, seconds: float, tail: float) -> int:
    """Adds a job to the list, which stays sorted from the latest head to the first."""
    place = count
    while place > 0 and partial.jobs[place - 1, 0] < head:
        for field in range(3):
            partial.jobs[place, field] = partial.jobs[place - 1, field]
        place -= 1
    partial.jobs[place, 0] = head
    partial.jobs[place, 1] = seconds
    partial.jobs[place, 2] = tail
    return count + 1


@compiled
def _one_machine(partial: PartialProblem, count: int) -> float:
    """The most that any jobs with head >= a and tail >= b ask for: a + their seconds + b."""
    bound = 0.0
    for last in range(count):
        tail = partial.jobs[last, 2]
        work = 0.0
        for job in range(count):
            if partial.jobs[job, 2] >= tail:
                work += partial.jobs[job, 1]
                bound = max(bound, partial.jobs[job, 0] + work + tail)
    return bound

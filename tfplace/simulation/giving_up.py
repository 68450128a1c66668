"""When a run can be given up, compiled: what a placement takes at least."""

from __future__ import annotations

from graphs.host.compiled import compiled_part
from graphs.op_graph import IntArray
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.scratch import Scratch


@compiled_part
def least_makespan(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray) -> float:
    """Seconds that a placement takes at least, by its longest path and its fullest device.

    Fills scratch.tail, the longest path from an op's start to the end with the moves between
    devices, which wait for no channel, and scratch.work_left.
    """
    for device in range(len(arrays.slots)):
        scratch.work_left[device] = 0.0
    longest = 0.0
    for op in range(len(device_of_op) - 1, -1, -1):
        device = device_of_op[op]
        after = 0.0
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
                user = arrays.use_op[index]
                where = device_of_op[user]
                rest = scratch.tail[user]
                if where != device:
                    rest += (
                        arrays.tensor_bytes[tensor] / arrays.bandwidth[device, where]
                        + arrays.latency[device, where]
                    )
                after = max(after, rest)
        seconds = arrays.op_seconds[op, device]
        scratch.work_left[device] += seconds
        scratch.tail[op] = seconds + after
        longest = max(longest, scratch.tail[op])
    for device in range(len(arrays.slots)):
        longest = max(longest, scratch.work_left[device] / arrays.slots[device])
    scratch.bound[0] = longest
    return longest

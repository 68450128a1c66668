"""The contract, section 6, compiled: one placement in, its makespan and peak memory out.

The rules themselves are in `rules_1_to_6` and, for problems with an executor, in `rules_7_to_10`.
Which of the two runs is settled by the type of the problem's arrays, when Numba compiles: nobody
waits for the one that is not needed.
"""

import numpy as np

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.simulation.arrays import ExecutorArrays, SimulationArrays
from tfplace.simulation.rules_1_to_6 import reset, run
from tfplace.simulation.rules_7_to_10 import run_with_executor
from tfplace.simulation.scratch import Scratch


@compiled
def simulate(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, limit: float
) -> float:
    """Runs one placement; the peaks are in scratch.peak, all times in scratch.

    Of an executor's several orders these are of the first.

    Args:
      scratch: as its `tracks_memory`, `may_give_up` and `logs` say.
      device_of_op: i4[N].
      limit: seconds; a run that can't end by then may be given up if scratch.may_give_up. No
        default: Numba would compile everything a second time, for who leaves it out.

    Returns:
      The makespan in seconds, the mean over the orders; inf where an op has no kernel on its
      device, and then the peaks are the persistent bytes; inf where the run was given up.
    """
    return _simulate(arrays, arrays.executor, arrays.no_executor, scratch, device_of_op, limit)


@compiled_part
def _simulate(
    arrays: SimulationArrays,
    executor: ExecutorArrays | None,
    no_executor: int | None,
    scratch: Scratch,
    device_of_op: IntArray,
    limit: float,
) -> float:
    """`simulate`; Numba leaves out the branch for what is None, and only that one."""
    if not scratch.may_give_up:
        limit = np.inf
    if executor is not None:
        return _mean_over_orders(arrays, executor, scratch, device_of_op, limit)
    if no_executor is not None:
        if limit < np.inf and least_makespan(arrays, scratch, device_of_op) > limit:
            return np.inf
        # Rule 5: the makespan is infinite if an op lies where it has no kernel.
        if reset(arrays, scratch, device_of_op):
            return run(arrays, scratch, device_of_op, limit)
    return np.inf


@compiled_part
def _mean_over_orders(
    arrays: SimulationArrays,
    executor: ExecutorArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    limit: float,
) -> float:
    """The mean makespan; the first order is run last, so that scratch keeps its times and peaks."""
    num_orders = len(executor.op_turn)
    total = 0.0
    for order in range(num_orders - 1, -1, -1):
        scratch.executor.order[0] = order
        left = limit
        if limit < np.inf:
            least = least_makespan(arrays, scratch, device_of_op)  # whatever the order
            left = limit * num_orders - total - order * least
            if least > left:
                return np.inf
        if not reset(arrays, scratch, device_of_op):
            return np.inf
        total += run_with_executor(arrays, executor, scratch, device_of_op, left)
        if total == np.inf:
            return np.inf
    return total / num_orders


@compiled
def simulate_batch(
    arrays: SimulationArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    makespans: FloatArray,
    peaks: LongArray,
) -> None:
    """Runs placements i4[B, N] into makespans f8[B] and peaks i8[B, D]."""
    for row in range(len(device_of_op)):
        makespans[row] = simulate(arrays, scratch, device_of_op[row], np.inf)
        for device in range(len(scratch.peak)):
            peaks[row, device] = scratch.peak[device]


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

"""Earliest task first, with favourite children, compiled: what m-ETF and m-SCT have in common."""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.list_problem import (
    ListProblem,
    PartialSchedule,
    arrival,
    empty_schedule,
    list_problem,
    may_take,
    move_seconds,
    place_op,
)
from tfplace.algorithms.placers.memory import made_to_fit
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator

# Of the ready ops, the so many that have been ready longest are compared: graphs of 100,000 ops
# can have 50,000 ready at once, and comparing all of them each time took 63 s.
MAX_COMPARED = 1000

# In place of an op: there is none.
NOBODY = -1


class _ReadyOps(NamedTuple):
    """Ops that can start, and devices that wait for one of them.

    Attributes:
      pending: i4[N] inputs whose producer is not placed.
      arrival: f8[N, D] when a ready op's last input is on each device.
      ready: i4[N] ops without pending inputs, in the order in which they became so.
      compared: i4[MAX_COMPARED] those among them that may be next, in any order.
      slot_free: f8[D, S] seconds when each slot of each device is free.
      kept_for: i4[D] the op that a device is kept for, or NOBODY.
      kept_until: f8[D] seconds.
    """

    pending: IntArray
    arrival: FloatArray
    ready: IntArray
    compared: IntArray
    slot_free: FloatArray
    kept_for: IntArray
    kept_until: FloatArray


def earliest_task_first(simulator: Simulator, favourite: IntArray) -> IntArray:
    """Repeatedly starts the op and device with the earliest start among all ready ops.

    Args:
      simulator: of the problem.
      favourite: i4[N] each op's favourite child, or NOBODY. After an op, its device is kept
        for its favourite child until that could start elsewhere, unless another op is urgent:
        its inputs would be there by now on any device.

    Returns:
      i4[N] devices.
    """
    arrays = simulator.arrays
    problem = list_problem(simulator, only_working=True)
    num_ops, num_devices = problem.allowed.shape
    ready = _ReadyOps(
        pending=arrays.num_inputs.copy(),
        arrival=np.zeros((num_ops, num_devices)),
        ready=np.empty(num_ops, dtype=np.int32),
        compared=np.empty(MAX_COMPARED, dtype=np.int32),
        slot_free=np.zeros((num_devices, int(arrays.slots.max(initial=1)))),
        kept_for=np.full(num_devices, NOBODY, dtype=np.int32),
        kept_until=np.zeros(num_devices),
    )
    schedule = empty_schedule(problem)
    _earliest_task_first(arrays, problem, favourite, schedule, ready)
    return schedule.device_of_op


@compiled
def _earliest_task_first(
    arrays: SimulationArrays,
    problem: ListProblem,
    favourite: IntArray,
    schedule: PartialSchedule,
    state: _ReadyOps,
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
        place, device, start = _earliest(arrays, problem, schedule, state, num_compared)
        op = state.compared[place]
        # The last one takes its place: the order among the compared ops means nothing.
        num_compared -= 1
        state.compared[place] = state.compared[num_compared]
        end = start + arrays.op_seconds[op, device]
        place_op(problem, schedule, op, device, end)
        state.slot_free[device, _free_slot(arrays, state, device)] = end
        _keep_device(arrays, state, op, favourite[op], device, end)
        num_ready = _add_ready(arrays, schedule, state, op, num_ready)


@compiled_part
def _keep_device(
    arrays: SimulationArrays, state: _ReadyOps, op: int, child: int, device: int, end: float
) -> None:
    """No device waits for an op that is placed; its own now waits for its favourite child."""
    for other in range(len(state.kept_for)):
        if state.kept_for[other] == op:
            state.kept_for[other] = NOBODY
    state.kept_for[device] = child
    if child >= 0:
        state.kept_until[device] = end + _longest_move(arrays, op, child, device)


@compiled_part
def _add_ready(
    arrays: SimulationArrays, schedule: PartialSchedule, state: _ReadyOps, op: int, num_ready: int
) -> int:
    """Queues the users of a placed op that wait for nothing else; returns how many were queued."""
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            user = arrays.use_op[index]
            state.pending[user] -= 1
            if state.pending[user] == 0:
                for device in range(len(schedule.room)):
                    state.arrival[user, device] = arrival(arrays, schedule, user, device)
                state.ready[num_ready] = user
                num_ready += 1
    return num_ready


@compiled_part
def _earliest(
    arrays: SimulationArrays,
    problem: ListProblem,
    schedule: PartialSchedule,
    state: _ReadyOps,
    num_compared: int,
) -> tuple[int, int, float]:
    """Position in `compared`, device and start of the earliest start.

    Ties go to the op that the device is kept for, then to the first op, then to the first device.
    """
    best_place, best_device, best_start = -1, -1, np.inf
    best_kept = False
    for place in range(num_compared):
        op = state.compared[place]
        everywhere = 0.0  # when its inputs are there, wherever it may go
        for device in range(len(schedule.room)):
            if problem.allowed[op, device]:
                everywhere = max(everywhere, state.arrival[op, device])
        for device in range(len(schedule.room)):
            if not may_take(problem, schedule, op, device):
                continue
            free = state.slot_free[device, _free_slot(arrays, state, device)]
            start = max(state.arrival[op, device], free)
            kept = state.kept_for[device] == op
            is_urgent = everywhere <= free
            if state.kept_for[device] >= 0 and not kept and not is_urgent:
                start = max(start, state.kept_until[device])
            better = start < best_start
            if start == best_start and best_place >= 0:
                better = (kept and not best_kept) or (
                    kept == best_kept and op < state.compared[best_place]
                )
            if better or best_place < 0:
                best_place, best_device, best_start, best_kept = place, device, start, kept
    return best_place, best_device, best_start


@compiled_part
def _free_slot(arrays: SimulationArrays, state: _ReadyOps, device: int) -> int:
    """The slot of a device that is free first."""
    first = 0
    for slot in range(1, arrays.slots[device]):
        if state.slot_free[device, slot] < state.slot_free[device, first]:
            first = slot
    return first


@compiled_part
def _longest_move(arrays: SimulationArrays, op: int, child: int, device: int) -> float:
    """Seconds after which what an op made for a child is on every other device."""
    longest = 0.0
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            if arrays.use_op[index] == child:
                for other in range(len(arrays.slots)):
                    if other != device:
                        longest = max(longest, move_seconds(arrays, tensor, device, other))
    return longest


def m_etf(problem: Problem, seed: int = 0) -> IntArray:
    """Starts, again and again, the op and device with the earliest possible start.

      (i, d) = argmin max(free(d), max over inputs j of end(j) + [d(j) ≠ d] c_ji)

    over ready ops i and working devices d with room for them; ties go to the earlier op. The
    first op of a colocation group decides for all of it.

    Source: Hwang et al. 1989 (ETF); Jeon et al., "Baechi", SoCC 2020 (m-ETF: with memory limits and
    co-placement). Departures: bytes are the estimate of `placers.memory`; ops with a kernel on an
    accelerator never go to the CPU, which ETF would fill because it is idle; what doesn't fit in
    the end is repaired.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    no_favourites = np.full(problem.num_ops, NOBODY, dtype=np.int32)
    return made_to_fit(simulator, earliest_task_first(simulator, no_favourites), seed)[None]

"""m-ETF and m-SCT: earliest task first, compiled; m-SCT knows favourite children."""

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

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
from tfplace.grouping.quotient import fastest_seconds, transfer_seconds
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.simulator import Simulator

# Of the ready ops, the so many that have been ready longest are compared: graphs of 100,000 ops
# can have 50,000 ready at once, and comparing all of them each time took 63 s.
MAX_COMPARED = 1000

# In place of an op: there is none.
NOBODY = -1


class _ReadyOps(NamedTuple):
    """Ops that can start, and devices that wait for one of them."""

    pending: IntArray  # i4[N] inputs whose producer is not placed
    arrival: FloatArray  # f8[N, D] when a ready op's last input is on each device
    ready: IntArray  # i4[N] ops without pending inputs, in the order in which they became so
    compared: IntArray  # i4[MAX_COMPARED] those among them that may be next, in any order
    slot_free: FloatArray  # f8[D, S] seconds when each slot of each device is free
    kept_for: IntArray  # i4[D] the op that a device is kept for, or NOBODY
    kept_until: FloatArray  # f8[D] seconds


def earliest_task_first(simulator: Simulator, favourite: IntArray) -> IntArray:
    """Repeatedly starts the op and device with the earliest start among all ready ops.

    Args:
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


# m-SCT: small communication times: a linear program picks favourite children, then ETF.


# Ops per linear program; a larger graph is cut into windows of its topological order.
WINDOW_OPS = 500

# An edge whose x is below this makes its end a favourite child (Hanen and Munier: 1/2; at most
# one edge of an op can lie below it).
FAVOURITE_BELOW = 0.5


def m_sct(problem: Problem, seed: int = 0) -> IntArray:
    """Favourite children by linear programming, then earliest task first that waits for them.

      minimise w subject to
        s_i + p_i + c_ij x_ij ≤ s_j        for each edge
        s_i + p_i ≤ w                      for each op
        Σ_j x_ij ≥ outdeg(i) − 1, Σ_i x_ij ≥ indeg(j) − 1, 0 ≤ x ≤ 1

    x_ij < 1/2 makes j the favourite child of i: the pair wants one device.

    Source: Hanen and Munier 1995 (SCT); Jeon et al., "Baechi", SoCC 2020 (m-SCT). Departures: a
    graph of more than WINDOW_OPS ops is cut into windows of its topological order, one program
    each, because x only matters between neighbours and a program of 10,000 ops takes minutes; for
    memory and the rest see m-ETF.

    Returns:
      i4[1, N].
    """
    simulator = Simulator(problem, num_threads=1)
    placement = earliest_task_first(simulator, favourite_children(problem))
    return made_to_fit(simulator, placement, seed)[None]


def favourite_children(problem: Problem, window_ops: int = WINDOW_OPS) -> IntArray:
    """i4[N]: each op's favourite child, or NOBODY; no op is the favourite of two.

    Raises:
      RuntimeError: if the solver fails, which a program that is always feasible rules out.
    """
    producer, consumer, _ = problem.graph.op_edges()
    moving, size = transfer_seconds(problem)[problem.graph.use_tensor], problem.num_ops
    # Edges between ops, each once: what moving all of its tensors takes.
    edges = sparse.coo_array((moving, (producer, consumer)), shape=(size, size)).tocsr().tocoo()
    source, target, cost = edges.row.astype(np.int32), edges.col.astype(np.int32), edges.data
    seconds = fastest_seconds(problem, problem.allowed())
    favourite = np.full(problem.num_ops, NOBODY, dtype=np.int32)
    for first in range(0, problem.num_ops, window_ops):
        last = min(first + window_ops, problem.num_ops)
        inside = np.flatnonzero((source >= first) & (target < last))
        if not len(inside):
            continue
        x = _solve(
            seconds[first:last], source[inside] - first, target[inside] - first, cost[inside]
        )
        chosen = inside[x < FAVOURITE_BELOW]
        favourite[source[chosen]] = target[chosen]
    return favourite


def _solve(seconds: FloatArray, source: IntArray, target: IntArray, cost: FloatArray) -> FloatArray:
    """f8[E]: x of one window's program; the columns are s [n], x [E], w."""
    num_ops, num_edges = len(seconds), len(source)
    # The solver's tolerances are absolute, op times are microseconds: scale to a mean of 1.
    scale = max(float(np.concatenate([seconds, cost]).mean()), 1e-30)
    seconds, cost = seconds / scale, cost / scale
    edge, op = np.arange(num_edges), np.arange(num_ops)
    one = np.ones(num_edges)
    x_column, w_column = num_ops + edge, num_ops + num_edges
    width = w_column + 1

    order = sparse.coo_array(
        (
            np.concatenate([one, cost, -one]),
            (np.tile(edge, 3), np.concatenate([source, x_column, target])),
        ),
        shape=(num_edges, width),
    )
    end = sparse.coo_array(
        (
            np.repeat([1.0, -1.0], num_ops),
            (np.tile(op, 2), np.concatenate([op, np.full(num_ops, w_column)])),
        ),
        shape=(num_ops, width),
    )
    out_degree = sparse.coo_array((-one, (source, x_column)), shape=(num_ops, width))
    in_degree = sparse.coo_array((-one, (target, x_column)), shape=(num_ops, width))
    objective = np.zeros(width)
    objective[w_column] = 1.0
    result = optimize.linprog(
        objective,
        A_ub=sparse.vstack([order, end, out_degree, in_degree]).tocsr(),
        b_ub=np.concatenate(
            [
                -seconds[source],
                -seconds,
                1.0 - np.bincount(source, minlength=num_ops),
                1.0 - np.bincount(target, minlength=num_ops),
            ]
        ),
        bounds=[(0, None)] * num_ops + [(0, 1)] * num_edges + [(0, None)],
        method="highs",
    )
    if result.x is None:
        raise RuntimeError(f"solving m-SCT's linear program: {result.message}")
    return np.asarray(result.x[num_ops:w_column])

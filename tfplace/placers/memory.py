"""Memory while placing: an estimate before, a repair after.

Peak memory is known only once a placement is complete. Before that, an op is taken to need its
persistent bytes and a share of what it allocates; the share is such that the estimate is right
for all ops on one device. After that, the simulator says what is over, when, and what was held.
"""

from __future__ import annotations

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Grouping
from graphs.problem import Problem
from tfplace.evaluation.schedule import held_intervals
from tfplace.evaluation.simulator import Simulator
from tfplace.grouping.quotient import group_allowed
from tfplace.placers.legal import legal, working_devices

# A repair that moved something this many times and still doesn't fit gives up.
MAX_REPAIRS = 30


def op_bytes_estimate(simulator: Simulator) -> FloatArray:
    """f8[N]: persistent bytes plus each op's share of the peak that one device would have."""
    problem = simulator.problem
    graph = problem.graph
    allocated = np.zeros(graph.num_ops)
    np.add.at(allocated, graph.tensor_producer, graph.tensor_alloc_bytes.astype(np.float64))
    device = working_devices(problem)[0]
    _, peaks = simulator.run(legal(problem, np.full(graph.num_ops, device, dtype=np.int32)))
    persistent = graph.op_persistent_bytes.astype(np.float64)
    share = (peaks.sum() - persistent.sum()) / max(allocated.sum(), 1.0)
    return persistent + min(max(share, 0.0), 1.0) * allocated


def sum_by_group(grouping: Grouping, amounts: FloatArray) -> FloatArray:
    """f8[G]: the sum of f8[N] over each group's ops."""
    sums = np.zeros(grouping.num_groups)
    np.add.at(sums, grouping.group_of_op, amounts)
    return sums


def repaired(simulator: Simulator, grouping: Grouping, device_of_op: IntArray) -> IntArray:
    """Moves groups off devices that are too full until all fit, or nothing more helps.

    The groups that hold most on the fullest device at the moment of its peak go to the device
    with most room; the least number of them that ends the excess.

    Args:
      simulator: of the problem.
      grouping: what moves as one: no colocation group is split by it.
      device_of_op: i4[N], legal.

    Returns:
      i4[N], legal; as it came if it fits. It may still be too large.
    """
    problem = simulator.problem
    allowed = group_allowed(problem.allowed(), grouping)
    usable = problem.usable_bytes()
    best, least = device_of_op, np.inf
    for _ in range(MAX_REPAIRS):
        makespan, peaks = simulator.run(device_of_op)
        over = np.maximum(peaks - usable, 0.0)
        if over.sum() < least:
            best, least = device_of_op, over.sum()
        if not over.any() or not np.isfinite(makespan):
            break
        worst = int(np.argmax(over))
        held = _held_at_peak(simulator, device_of_op, worst, grouping)
        moved = _moves(held, over[worst], allowed, worst, np.maximum(usable - peaks, 0.0))
        if not moved:
            break
        device_of_op = device_of_op.copy()
        for group, target in moved:
            member = (grouping.group_of_op == group) & (device_of_op == worst)
            device_of_op[member] = target
        device_of_op = legal(problem, device_of_op)
    return best


def fits(problem: Problem, peak_bytes: IntArray) -> bool:
    """Whether peaks [D] leave the reserve free."""
    return bool(np.all(peak_bytes <= problem.usable_bytes()))


def _held_at_peak(
    simulator: Simulator, device_of_op: IntArray, device: int, grouping: Grouping
) -> FloatArray:
    """f8[G]: bytes of each group's ops on a device at the moment when it is fullest."""
    problem = simulator.problem
    schedule = simulator.schedule(device_of_op)
    held = held_intervals(problem, schedule)
    here = np.flatnonzero((held.device == device) & (held.end > held.start))
    start, end, size = held.start[here], held.end[here], held.bytes[here]
    instants, position = np.unique(np.concatenate([start, end]), return_inverse=True)
    net = np.zeros(len(instants), dtype=np.int64)
    np.add.at(net, position, np.concatenate([size, -size]))
    bytes_of_group = np.zeros(grouping.num_groups)
    if len(instants):
        peak = instants[np.argmax(np.cumsum(net))]
        alive = (start <= peak) & (peak < end)
        owner = grouping.group_of_op[held.op[here[alive]]]
        np.add.at(bytes_of_group, owner, size[alive].astype(np.float64))
    resident = device_of_op == device
    np.add.at(
        bytes_of_group,
        grouping.group_of_op[resident],
        problem.graph.op_persistent_bytes[resident].astype(np.float64),
    )
    # What is here only as a copy leaves with its users, not with its producer.
    present = np.zeros(grouping.num_groups, dtype=bool)
    present[grouping.group_of_op[resident]] = True
    return np.where(present, bytes_of_group, 0.0)


def _moves(
    held: FloatArray, excess: float, allowed: np.ndarray, source: int, room: FloatArray
) -> list[tuple[int, int]]:
    """(group, target) pairs, largest first, until the excess is gone or nothing has room."""
    moves = []
    room = room.copy()
    for group in np.argsort(-held, kind="stable"):
        if excess <= 0.0 or held[group] <= 0.0:
            break
        targets = np.flatnonzero(allowed[group] & (np.arange(len(room)) != source))
        targets = targets[room[targets] >= held[group]]
        if len(targets):
            target = int(targets[np.argmax(room[targets])])
            moves.append((int(group), target))
            room[target] -= held[group]
            excess -= held[group]
    return moves

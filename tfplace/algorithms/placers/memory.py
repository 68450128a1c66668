"""Memory while placing: an estimate before, a repair after.

Peak memory is known only once a placement is complete. Before that, an op is taken to need its
persistent bytes and a share of what it allocates; the share is such that the estimate is right
for all ops on one device. After that, the simulator says what is over, when, and what was held.
"""

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Grouping
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.grouping.coarsen import Coarsening
from tfplace.grouping.quotient import BoolArray, group_allowed, group_sums
from tfplace.simulation.schedule import alive_at_peak, held_intervals
from tfplace.simulation.simulator import Simulator

# A repair takes at most this many steps.
MAX_REPAIRS = 30

# It moves groups of these groupings, and colocation units ...
REPAIR_GROUPS = (8, 32)

# ... one of the so many that hold most at a time.
NUM_LARGEST = 4

# Of more devices, those with the most room are tried as targets.
MOST_TARGETS = 6


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


def made_to_fit(simulator: Simulator, wanted: IntArray, seed: int = 0) -> IntArray:
    """i4[N]: what was wanted, made legal, and repaired where it lacks memory."""
    return repaired(simulator, legal(simulator.problem, wanted), seed)


def repaired(simulator: Simulator, device_of_op: IntArray, seed: int = 0) -> IntArray:
    """Moves groups off devices that are too full until all fit, or nothing helps any more.

    Steepest descent on the bytes that lack, all devices together. Each step tries, on the device
    that lacks most and for groups from coarse clusters to single colocation units, to move one of
    those that hold most when it is fullest, or as many as end the excess; the simulator says
    what that is worth, copies included.

    Args:
      device_of_op: i4[N], legal.

    Returns:
      i4[N], legal; as it came if it fits. It may still be too large.
    """
    problem = simulator.problem
    usable = problem.usable_bytes()
    makespan, peaks = simulator.run(device_of_op)
    lacking = np.maximum(peaks - usable, 0.0)
    if not lacking.any() or not np.isfinite(makespan):
        return device_of_op
    of_units = Coarsening(problem)
    units = of_units.start
    sizes = [size for size in REPAIR_GROUPS if size < units.num_groups]
    groupings = [*(of_units.groups(size, seed) for size in sizes), units]
    for _ in range(MAX_REPAIRS):
        candidates = _candidates(simulator, groupings, device_of_op, lacking, usable - peaks)
        if not len(candidates):
            break
        makespans, all_peaks = simulator.run_many(candidates)
        still_lacking = np.maximum(all_peaks - usable, 0.0)
        best = np.lexsort((makespans, still_lacking.sum(axis=1)))[0]
        if still_lacking[best].sum() >= lacking.sum():
            break
        device_of_op, peaks, lacking = candidates[best], all_peaks[best], still_lacking[best]
        if not lacking.any():
            break
    return device_of_op


def _candidates(
    simulator: Simulator,
    groupings: Sequence[Grouping],
    device_of_op: IntArray,
    lacking: FloatArray,
    room: FloatArray,
) -> IntArray:
    """i4[C, N]: what to try next against the lack of memory f8[D]."""
    problem = simulator.problem
    worst = int(np.argmax(lacking))
    held_by_op = _held_at_peak(simulator, device_of_op, worst)
    candidates = []
    for grouping in groupings:
        allowed = group_allowed(problem.allowed(), grouping)
        here = device_of_op == worst
        # What is here only as a copy leaves with its users, not with its producer.
        held = group_sums(np.where(here, held_by_op, 0.0), grouping)
        allowed[:, worst] = False
        changes = [
            [(int(group), int(target))]
            for group in np.argsort(-held, kind="stable")[:NUM_LARGEST]
            if held[group] > 0.0
            for target in _targets(allowed[group], room)
        ]
        changes.append(_enough(held, float(lacking[worst]), allowed, np.maximum(room, 0.0)))
        for change in changes:
            target_of_group = np.full(grouping.num_groups, -1, dtype=np.int32)
            for group, target in change:
                target_of_group[group] = target
            target_of_op = target_of_group[grouping.group_of_op]
            candidates.append(np.where(here & (target_of_op >= 0), target_of_op, device_of_op))
    return np.array(candidates, dtype=np.int32).reshape(-1, problem.num_ops)


def _targets(allowed: BoolArray, room: FloatArray) -> list[int]:
    """Where a group may go, ascending; of too many devices those with the most room."""
    targets = np.flatnonzero(allowed)
    roomiest = targets[np.argsort(-room[targets], kind="stable")[:MOST_TARGETS]]
    return sorted(roomiest.tolist())


def _held_at_peak(simulator: Simulator, device_of_op: IntArray, device: int) -> FloatArray:
    """f8[N]: bytes that each op's tensors and variables hold on a device when it is fullest."""
    problem = simulator.problem
    held = held_intervals(problem, simulator.schedule(device_of_op))
    persistent = problem.graph.op_persistent_bytes.astype(np.float64)
    bytes_of_op = np.where(device_of_op == device, persistent, 0.0)
    alive = alive_at_peak(held, device)
    np.add.at(bytes_of_op, held.op[alive], held.bytes[alive].astype(np.float64))
    return bytes_of_op


def _enough(
    held: FloatArray, excess: float, allowed: BoolArray, room: FloatArray
) -> list[tuple[int, int]]:
    """(group, target) pairs, largest first, until the excess is gone or nothing has room."""
    moves = []
    room = room.copy()
    for group in np.argsort(-held, kind="stable"):
        if excess <= 0.0 or held[group] <= 0.0:
            break
        targets = np.flatnonzero(allowed[group] & (room >= held[group]))
        if len(targets):
            target = int(targets[np.argmax(room[targets])])
            moves.append((int(group), target))
            room[target] -= held[group]
            excess -= held[group]
    return moves

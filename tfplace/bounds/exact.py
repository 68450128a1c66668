"""The best of all placements of a small graph, by branch and bound over its units.

Section 6 is one particular schedule per placement, so the optimum is over placements: units
(colocation groups and single ops) get devices one after another, the weightiest first. A partial
placement is given up once no completion can beat the best placement known (partial_bound); a
complete one is simulated. The result is exact: also where devices are alike, because the order of
devices decides which of two transfers of one tensor goes first, every renaming that could matter
is simulated.
"""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem
from tfplace.bounds.partial_bound import PartialProblem, partial_bound, partial_problem
from tfplace.grouping.quotient import colocation_units, group_allowed, group_sums, use_seconds
from tfplace.simulation.arrays import SimulationArrays, simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import Scratch, new_scratch

# Graphs with more units than this that have a choice of devices are not tried.
MAX_FREE_UNITS = 40

# A partial placement's bound takes time that grows with the square of the ops.
MAX_OPS = 1000

# So many units are compared before one is branched on.
NUM_PROBED = 6

# Partial placements between two looks at the clock.
NODES_PER_LOOK = 200


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What a search for the optimum proved.

    Attributes:
      lower_bound_seconds: no placement is faster; inf where none fits.
      device_of_op: i4[N] the fastest placement seen; None where none fits, or none was seen.
      step_seconds: its makespan; inf where there is none.
      is_proven: whether it is the optimum (or it is proven that nothing fits).
      num_nodes: partial placements looked at.
    """

    lower_bound_seconds: float
    device_of_op: IntArray | None
    step_seconds: float
    is_proven: bool
    num_nodes: int


class _Tree(NamedTuple):
    """Where the search is, S units that have a choice.

    Attributes:
      unit_order: i8[S] units: those chosen so far, then the others, weightiest first.
      alike: i8[D] 1 for devices that may be renamed into each other.
      child: i8[S, D] devices to try at each depth, most promising first; -1 ends the list.
      child_bound: f8[S, D].
      next_child: i8[S].
      label: i8[D] scratch for renaming; renamed: i4[D] the device that each stands for.
      placement, best: i4[N].
      usable: f8[D].
      numbers: f8[1] the best makespan so far.
      counts: i8[2] depth, nodes.
    """

    unit_order: LongArray
    alike: LongArray
    child: LongArray
    child_bound: FloatArray
    next_child: LongArray
    label: LongArray
    renamed: IntArray
    placement: IntArray
    best: IntArray
    usable: FloatArray
    numbers: FloatArray
    counts: LongArray


def num_free_units(problem: Problem) -> int:
    """Units that have a choice of devices."""
    allowed = group_allowed(problem.allowed(), colocation_units(problem.graph))
    return int((allowed.sum(axis=1) > 1).sum())


def is_small(problem: Problem) -> bool:
    """Whether the optimum may be found in reasonable time."""
    return problem.num_ops <= MAX_OPS and num_free_units(problem) <= MAX_FREE_UNITS


def optimum(problem: Problem, budget_seconds: float, start: IntArray | None = None) -> Optimum:
    """Searches for the fastest placement that fits, until it is proven or the time is up.

    Args:
      problem: a small one; see `is_small`.
      budget_seconds: wall time.
      start: i4[N], a good placement that fits, or None.
    """
    arrays = simulation_arrays(problem)
    scratch = new_scratch(arrays)
    partial = partial_problem(problem)
    if not partial.allowed.any(axis=1).all():
        return Optimum(float("inf"), None, float("inf"), True, 0)
    tree = _new_tree(problem, partial)
    if start is not None:
        makespan = simulate(arrays, scratch, np.ascontiguousarray(start, dtype=np.int32))
        if np.all(scratch.peak <= tree.usable):
            tree.numbers[0] = makespan
            tree.best[:] = start
    _open(tree, partial, arrays, scratch)
    deadline = time.monotonic() + budget_seconds
    while tree.counts[0] >= 0 and time.monotonic() < deadline:
        _advance(tree, partial, arrays, scratch, NODES_PER_LOOK)
    best = float(tree.numbers[0])
    is_proven = bool(tree.counts[0] < 0)
    return Optimum(
        lower_bound_seconds=best if is_proven else min(best, _open_bound(tree)),
        device_of_op=tree.best if np.isfinite(best) else None,
        step_seconds=best,
        is_proven=is_proven,
        num_nodes=int(tree.counts[1]),
    )


def _new_tree(problem: Problem, partial: PartialProblem) -> _Tree:
    units = colocation_units(problem.graph)
    free = np.flatnonzero(partial.allowed.sum(axis=1) > 1)
    seconds = np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0.0).max(axis=1)
    producer, consumer, _ = problem.graph.op_edges()
    weight = group_sums(seconds, units)
    moved = use_seconds(problem)
    for end in (producer, consumer):
        weight = weight + np.bincount(
            units.group_of_op[end], weights=moved, minlength=units.num_groups
        )
    num_devices = problem.num_devices
    fixed = partial.allowed.sum(axis=1) == 1
    partial.device_of_unit[fixed] = partial.allowed[fixed].argmax(axis=1)
    return _Tree(
        unit_order=free[np.argsort(-weight[free], kind="stable")].astype(np.int64),
        alike=_alike(problem),
        child=np.full((len(free) + 1, num_devices + 1), -1, dtype=np.int64),
        child_bound=np.zeros((len(free) + 1, num_devices + 1)),
        next_child=np.zeros(len(free) + 1, dtype=np.int64),
        label=np.zeros(num_devices, dtype=np.int64),
        renamed=np.zeros(num_devices, dtype=np.int32),
        placement=np.zeros(problem.num_ops, dtype=np.int32),
        best=np.zeros(problem.num_ops, dtype=np.int32),
        usable=problem.usable_bytes(),
        numbers=np.array([np.inf]),
        counts=np.zeros(2, dtype=np.int64),
    )


def _alike(problem: Problem) -> LongArray:
    """i8[D]: 1 for the largest set of devices of which any two can exchange their names."""
    best = np.zeros(problem.num_devices, dtype=np.int64)
    if problem.executor is not None:  # its order of ops depends on device numbers
        return best
    for first in range(problem.num_devices):
        found = np.zeros(problem.num_devices, dtype=np.int64)
        found[first] = 1
        for other in range(problem.num_devices):
            if other != first and _exchangeable(problem, first, other):
                found[other] = 1
        if found.sum() > max(best.sum(), 1):
            best = found
    return best


def _exchangeable(problem: Problem, first: int, second: int) -> bool:
    """Whether the problem is the same when two devices exchange their names."""
    swap = np.arange(problem.num_devices)
    swap[[first, second]] = second, first
    allowed = problem.allowed()
    columns = (problem.op_seconds, allowed)
    rows = (problem.device_slots, problem.device_memory_bytes)
    matrices = (problem.link_latency, problem.link_bytes_per_second)
    return (
        all(np.array_equal(each[:, first], each[:, second]) for each in columns)
        and all(each[first] == each[second] for each in rows)
        and all(np.array_equal(each, each[swap][:, swap], equal_nan=True) for each in matrices)
        and np.array_equal(
            _by_first_use(problem.link_channels),
            _by_first_use(problem.link_channels[swap][:, swap]),
        )
    )


def _by_first_use(channels: IntArray) -> IntArray:
    """Channels numbered in the order in which they appear; -1 stays."""
    values, first, place = np.unique(channels, return_index=True, return_inverse=True)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(values))
    rank[values < 0] = -1 - np.flatnonzero(values < 0)
    return rank[place].reshape(channels.shape).astype(np.int32)


def _open_bound(tree: _Tree) -> float:
    """The least bound of the partial placements that the search has not looked into."""
    least = np.inf
    for depth in range(int(tree.counts[0]) + 1):
        # The child before next_child is being looked into: deeper lists stand for it.
        for index in range(int(tree.next_child[depth]), tree.child.shape[1]):
            if tree.child[depth, index] < 0:
                break
            least = min(least, float(tree.child_bound[depth, index]))
    return least


@compiled
def _open(tree: _Tree, partial: PartialProblem, arrays: SimulationArrays, scratch: Scratch) -> None:
    """Starts the search at its root."""
    tree.counts[0] = 0
    _list_children(tree, partial, arrays, scratch)


@compiled
def _list_children(
    tree: _Tree, partial: PartialProblem, arrays: SimulationArrays, scratch: Scratch
) -> None:
    """Chooses the next unit and bounds its devices; a complete placement is simulated instead.

    Of the weightiest units left, the one whose best device is worst goes first: it will have to
    pay, so it proves most. One that has no device left ends the branch.
    """
    depth = tree.counts[0]
    tree.next_child[depth] = 0
    tree.child[depth, 0] = -1
    if depth == len(tree.unit_order):
        _try_all_namings(tree, partial, arrays, scratch)
        return
    chosen, worst = depth, -1.0
    for place in range(depth, min(depth + NUM_PROBED, len(tree.unit_order))):
        count = _bound_children(tree, partial, tree.unit_order[place], depth)
        least = np.inf if count == 0 else tree.child_bound[depth, 0]
        if count == 1:
            least = max(least, 0.5 * (least + tree.numbers[0]))
        if least > worst:
            chosen, worst = place, least
            _copy_children(tree, depth, len(tree.unit_order))
        if count == 0:
            break
    _copy_children(tree, len(tree.unit_order), depth)
    unit = tree.unit_order[chosen]
    for place in range(chosen, depth, -1):
        tree.unit_order[place] = tree.unit_order[place - 1]
    tree.unit_order[depth] = unit


@compiled
def _copy_children(tree: _Tree, source: int, target: int) -> None:
    """Copies a list of children; the last row keeps the best list while units are compared."""
    for index in range(tree.child.shape[1]):
        tree.child[target, index] = tree.child[source, index]
        tree.child_bound[target, index] = tree.child_bound[source, index]


@compiled
def _bound_children(tree: _Tree, partial: PartialProblem, unit: int, depth: int) -> int:
    """Lists the devices that may still be best for a unit, by their bounds; their number."""
    count = 0
    tried_unused = False
    for device in range(len(tree.alike)):
        if not partial.allowed[unit, device]:
            continue
        if tree.alike[device] and not _is_used(partial, device):
            if tried_unused:
                continue
            tried_unused = True
        partial.device_of_unit[unit] = device
        tree.counts[1] += 1
        bound = partial_bound(partial, tree.usable, tree.numbers[0])
        if bound >= tree.numbers[0]:
            continue
        place = count
        while place > 0 and tree.child_bound[depth, place - 1] > bound:
            tree.child_bound[depth, place] = tree.child_bound[depth, place - 1]
            tree.child[depth, place] = tree.child[depth, place - 1]
            place -= 1
        tree.child_bound[depth, place] = bound
        tree.child[depth, place] = device
        count += 1
    tree.child[depth, count] = -1
    partial.device_of_unit[unit] = -1
    return count


@compiled
def _is_used(partial: PartialProblem, device: int) -> bool:
    """Whether a unit lies on the device so far."""
    for unit in range(len(partial.device_of_unit)):
        if partial.device_of_unit[unit] == device:
            return True
    return False


@compiled
def _advance(
    tree: _Tree,
    partial: PartialProblem,
    arrays: SimulationArrays,
    scratch: Scratch,
    num_steps: int,
) -> None:
    """Goes on depth first for some steps; counts[0] is -1 when all is done."""
    for _ in range(num_steps):
        depth = tree.counts[0]
        if depth < 0:
            return
        device = tree.child[depth, tree.next_child[depth]]
        bound = tree.child_bound[depth, tree.next_child[depth]]
        if device < 0 or bound >= tree.numbers[0]:
            # The list is in ascending order, so the others are no better.
            if depth < len(tree.unit_order):
                partial.device_of_unit[tree.unit_order[depth]] = -1
            tree.counts[0] = depth - 1
            continue
        partial.device_of_unit[tree.unit_order[depth]] = device
        tree.next_child[depth] += 1
        tree.counts[0] = depth + 1
        _list_children(tree, partial, arrays, scratch)


@compiled
def _try_all_namings(
    tree: _Tree, partial: PartialProblem, arrays: SimulationArrays, scratch: Scratch
) -> None:
    """Simulates a placement under every renaming of alike devices that may change its time."""
    num_alike = 0
    used = 0
    for device in range(len(arrays.slots)):
        tree.renamed[device] = device
        if tree.alike[device]:
            if _is_used(partial, device):
                used += 1
            # Unused devices are the same label: exchanging them changes nothing.
            tree.label[num_alike] = used if _is_used(partial, device) else len(arrays.slots)
            num_alike += 1
    _simulate_named(tree, partial, arrays, scratch)
    if not _sends_twice(tree, partial, arrays):
        return
    _sort_labels(tree, num_alike)
    while True:
        _name_by_labels(tree, partial)
        _simulate_named(tree, partial, arrays, scratch)
        if not _next_permutation(tree.label, num_alike):
            return


@compiled
def _sort_labels(tree: _Tree, count: int) -> None:
    """Ascending: the first permutation."""
    for index in range(1, count):
        label = tree.label[index]
        place = index
        while place > 0 and tree.label[place - 1] > label:
            tree.label[place] = tree.label[place - 1]
            place -= 1
        tree.label[place] = label


@compiled
def _name_by_labels(tree: _Tree, partial: PartialProblem) -> None:
    """Device number i of the alike and used ones is renamed to where label i stands."""
    used = 0
    for device in range(len(tree.alike)):
        if not tree.alike[device] or not _is_used(partial, device):
            continue
        used += 1
        place = 0
        for other in range(len(tree.alike)):
            if tree.alike[other]:
                if tree.label[place] == used:
                    tree.renamed[device] = other
                place += 1


@compiled
def _next_permutation(values: LongArray, count: int) -> bool:
    """The next one in lexicographic order; equal values are not exchanged."""
    pivot = count - 2
    while pivot >= 0 and values[pivot] >= values[pivot + 1]:
        pivot -= 1
    if pivot < 0:
        return False
    other = count - 1
    while values[other] <= values[pivot]:
        other -= 1
    values[pivot], values[other] = values[other], values[pivot]
    low, high = pivot + 1, count - 1
    while low < high:
        values[low], values[high] = values[high], values[low]
        low += 1
        high -= 1
    return True


@compiled
def _sends_twice(tree: _Tree, partial: PartialProblem, arrays: SimulationArrays) -> bool:
    """Whether a tensor goes to two alike devices: only then does their order matter."""
    for tensor in range(len(arrays.producer)):
        source = partial.device_of_unit[partial.unit_of_op[arrays.producer[tensor]]]
        first = -1
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            target = partial.device_of_unit[partial.unit_of_op[arrays.use_op[index]]]
            if target != source and tree.alike[target]:
                if first >= 0 and target != first:
                    return True
                first = target
    return False


@compiled
def _simulate_named(
    tree: _Tree, partial: PartialProblem, arrays: SimulationArrays, scratch: Scratch
) -> None:
    """Simulates the placement under its present names; keeps it if it is the best that fits."""
    for op in range(len(tree.placement)):
        tree.placement[op] = tree.renamed[partial.device_of_unit[partial.unit_of_op[op]]]
    makespan = simulate(arrays, scratch, tree.placement)
    for device in range(len(arrays.slots)):
        if scratch.peak[device] > tree.usable[device]:
            return
    if makespan < tree.numbers[0]:
        tree.numbers[0] = makespan
        for op in range(len(tree.placement)):
            tree.best[op] = tree.placement[op]

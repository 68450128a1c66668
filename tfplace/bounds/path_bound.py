"""How soon each op can end: what it waits for stays on its device and queues, or pays a transfer.

Ops are visited in graph order. Let E_k(u) be the bound on the end of op u on a device of class k,
and E'(u) that on its end anywhere but on the device of the op v that is visited, which lies on a
device of class k and starts at S. Every placement's schedule obeys four inequalities, and each
takes the results of the ones before it:

1. For each input u of v, whose tensor takes c seconds to another device:
   S >= min(E_k(u), E'(u) + c). It was made on v's device, or elsewhere and then moved.
2. S >= the time at which v's device is done with the ancestors that must lie on it (staying.py).
3. The end of v >= what it costs to leave v's device somewhere on the path to v, or to run all of
   that path there with its other inputs (walk_back.py).
4. For each op x of a chain that ends in v: S >= min_k E_k(x) + the work that x and v enclose
   (enclosed_work.py).

The bound on the whole step is the greatest E_k(v), plus the same for what follows v.
"""

from __future__ import annotations

import numpy as np

from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.enclosed_work import EnclosedWork
from tfplace.bounds.relaxation import DeviceClasses, Edges
from tfplace.bounds.staying import Ancestors, new_ancestors, start_after_staying
from tfplace.bounds.sweep import Sweep, new_sweep, soonest_elsewhere
from tfplace.bounds.walk_back import Walk, end_of_walk, new_walk, note_inputs
from tfplace.simulation.event_heap import compiled


def soonest_ends(
    classes: DeviceClasses, edges: Edges, group: LongArray, enclosed: EnclosedWork
) -> FloatArray:
    """f8[N, K]: no schedule of any placement ends op n on a device of class k earlier.

    Args:
      classes: devices and seconds of the relaxed problem.
      edges: forward ones; with backward ones go reversed rows of seconds and groups.
      group: i8[N] colocation groups, -1 for none.
      enclosed: of a chain of these edges.

    Returns:
      Inf where the op may not lie, or nothing can make it run there.
    """
    sweep = new_sweep(classes, edges, group)
    place = np.full(len(group), -1, dtype=np.int64)
    place[enclosed.chain] = np.arange(len(enclosed.chain))
    ancestors, walk = new_ancestors(len(group)), new_walk(sweep)
    _visit_all(sweep, ancestors, walk, place, enclosed.chain, enclosed.seconds)
    return sweep.end


@compiled
def _visit_all(
    sweep: Sweep,
    ancestors: Ancestors,
    walk: Walk,
    place: LongArray,
    chain: LongArray,
    enclosed: FloatArray,
) -> None:
    """Fills sweep.end and sweep.soonest op by op.

    Args:
      sweep: of no op yet.
      ancestors: scratch of argument 2.
      walk: scratch of argument 3.
      place: i8[N] where an op stands in the chain, -1 for ops outside.
      chain: i8[P] of EnclosedWork.
      enclosed: f8[P, P] of EnclosedWork.
    """
    num_ops, num_classes = sweep.seconds.shape
    for op in range(num_ops):
        note_inputs(sweep, walk, op)
        after_chain = 0.0
        for earlier in range(place[op]):  # argument 4; no turn for an op outside of the chain
            ended = sweep.soonest[chain[earlier]]
            after_chain = max(after_chain, ended + enclosed[earlier, place[op]])
        for kind in range(num_classes):
            if sweep.seconds[op, kind] == np.inf:
                continue
            start = max(after_chain, _start_after_inputs(sweep, op, kind))
            if start > 0.0:
                start = start_after_staying(sweep, ancestors, op, kind, start)
            end = start + sweep.seconds[op, kind]
            if walk.before[op] >= 0:
                end = max(end, end_of_walk(sweep, walk, op, kind))
            sweep.end[op, kind] = end
            sweep.soonest[op] = min(sweep.soonest[op], end)


@compiled
def _start_after_inputs(sweep: Sweep, op: int, kind: int) -> float:
    """Argument 1."""
    start = 0.0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        moved = soonest_elsewhere(sweep, source, kind) + sweep.cost[edge]
        start = max(start, min(sweep.end[source, kind], moved))
    return start

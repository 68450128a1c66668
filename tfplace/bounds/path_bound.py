"""How soon each op can end: what it waits for stays on its device and queues, or pays a transfer.

Four arguments, each true of every placement, are taken together op by op in graph order. Let
op v lie on a device of class k and start at S:

1. Each input has been made there, or elsewhere and then moved.
2. An ancestor u whose tensor, made elsewhere, could not be there by S (on a path from u to v one
   edge at least pays) lies on v's device. All such ancestors ran there, one after another, before
   v: S is at least their common head plus their seconds. The least S that does not contradict
   itself is Papadimitriou and Yannakakis' bound (SIAM J. Computing 1990) with a transfer time of
   its own for each edge; it also holds where ops may be computed twice.
3. Walk back from v, each time to the input that ends last: v_1 .. v_m = v. Say v's device has run
   v_s .. v_m and v_{s-1} ran elsewhere, which cost a transfer. Every other input of v_s .. v_m was
   computed on v's device or came through its way in; neither can be used more than all the time.
   With y the share of the machine and 1 - y of the way in, each input takes min(y seconds,
   (1 - y) hold) at least, for any y in [0, 1]. The best s is the bound.
4. What has to run between v and an op that it waits for takes its time on all devices (between).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.enclosed_work import Between
from tfplace.bounds.relaxation import DeviceClasses, Edges
from tfplace.simulation.event_heap import pop_event, pop_key, push_event, push_key

# Argument 2 looks at so many ancestors of an op at most; fewer make the bound weaker, not wrong.
MAX_ANCESTORS = 3000

# Argument 3 walks back so many ops at most.
MAX_STEPS = 300

# It weighs machine against way in with shares y of 0, 1/8, .. 1 and those of so many inputs.
EVEN_SHARES = 9
INPUT_SHARES = 12


class _Sweep(NamedTuple):
    """What the sweep reads and writes.

    Attributes:
      row, source, cost, hold: Edges.
      seconds: f8[N, K]; least: f8[N] of its classes; slots: f8[K]; num_devices: i8[K].
      group: i8[N] colocation group or -1.
      end: f8[N, K] how soon the op ends on a class; soonest: f8[N] on any.
      before: i8[N] the input that ends last, -1 for none; owner: i8[N] the first op that has it as
        another input.
      added: i8[N] number of the walk that added the op as an input last; added_edge: i8[N].
      seen: i8[N] number of the walk that met the op last.
      stay, leave: f8[N] least seconds from the op's end to v's start, on v's device or elsewhere.
      queue: i8[N] ancestors to look at, latest first.
      threshold: f8[N] below which S has the ancestor on v's device; head, work: f8[N].
      by_head_time, by_head: its ancestors from the latest head to the first; by_threshold: f8[N].
      heap_key: i8[N] scratch.
      shares: f8[Y] ascending, in [0, 1]; share_work: f8[Y].
      place: i8[N] of an op in the chain, -1 for others; chain, between: Between.
    """

    row: LongArray
    source: LongArray
    cost: FloatArray
    hold: FloatArray
    seconds: FloatArray
    least: FloatArray
    slots: FloatArray
    num_devices: LongArray
    group: LongArray
    end: FloatArray
    soonest: FloatArray
    before: LongArray
    owner: LongArray
    added: LongArray
    added_edge: LongArray
    seen: LongArray
    stay: FloatArray
    leave: FloatArray
    queue: LongArray
    threshold: FloatArray
    head: FloatArray
    work: FloatArray
    by_head_time: FloatArray
    by_head: LongArray
    by_threshold: FloatArray
    heap_key: LongArray
    shares: FloatArray
    share_work: FloatArray
    place: LongArray
    chain: LongArray
    between: FloatArray


def soonest_ends(
    classes: DeviceClasses, edges: Edges, group: LongArray, between: Between
) -> FloatArray:
    """f8[N, K]: no schedule of any placement ends op n on a device of class k earlier.

    Args:
      classes, edges: the relaxed problem; backward edges go with reversed rows of seconds.
      group: i8[N] colocation groups, -1 for none.
      between: a chain of these edges.

    Returns:
      Inf where the op may not lie, or nothing can make it run there.
    """
    size, num_classes = classes.seconds.shape
    floats = [np.zeros(size) for _ in range(7)]
    shares = _shares(classes.seconds.min(axis=1), edges)
    place = np.full(size, -1, dtype=np.int64)
    place[between.chain] = np.arange(len(between.chain))
    sweep = _Sweep(
        *(edges.row, edges.source, edges.cost, edges.hold),
        classes.seconds,
        classes.seconds.min(axis=1),
        classes.slots,
        classes.num_devices,
        group,
        end=np.full((size, num_classes), np.inf),
        soonest=np.full(size, np.inf),
        before=np.full(size, -1, dtype=np.int64),
        owner=np.full(size, -1, dtype=np.int64),
        added=np.full(size, -1, dtype=np.int64),
        added_edge=np.zeros(size, dtype=np.int64),
        seen=np.full(size, -1, dtype=np.int64),
        stay=floats[0],
        leave=floats[1],
        queue=np.empty(size + 1, dtype=np.int64),
        threshold=floats[2],
        head=floats[3],
        work=floats[4],
        by_head_time=floats[5],
        by_head=np.empty(size, dtype=np.int64),
        by_threshold=floats[6],
        heap_key=np.empty(size, dtype=np.int64),
        shares=shares,
        share_work=np.zeros(len(shares)),
        place=place,
        chain=between.chain,
        between=between.seconds,
    )
    _sweep_ops(sweep)
    return sweep.end


def _shares(least: FloatArray, edges: Edges) -> FloatArray:
    """f8[Y] ascending: shares at which inputs of much work cost as much here as moved.

    Any shares in [0, 1] give a bound. An input takes the most at y seconds = (1 - y) hold; of these
    y, each weighed by what it takes there, evenly spaced ones are chosen.

    Args:
      least: f8[N] seconds of each op, inf where it has no device.
      edges: with their holds.
    """
    seconds = least[edges.source]
    counts = np.isfinite(seconds) & (seconds > 0.0) & (edges.hold > 0.0)
    seconds, hold = seconds[counts], edges.hold[counts]
    even = np.linspace(0.0, 1.0, EVEN_SHARES)
    if not len(hold):
        return even
    share = hold / (hold + seconds)
    order = np.argsort(share)
    taken = np.cumsum((share * seconds)[order])
    steps = (np.arange(INPUT_SHARES) + 0.5) / INPUT_SHARES * taken[-1]
    chosen = np.minimum(np.searchsorted(taken, steps), len(order) - 1)
    return np.unique(np.concatenate([even, share[order[chosen]]]))


@compiled
def _sweep_ops(sweep: _Sweep) -> None:
    """Fills sweep.end op by op."""
    num_ops, num_classes = sweep.seconds.shape
    for op in range(num_ops):
        _note_inputs(sweep, op)
        least = _start_in_chain(sweep, op)
        for kind in range(num_classes):
            if sweep.seconds[op, kind] == np.inf:
                continue
            start = least
            for edge in range(sweep.row[op], sweep.row[op + 1]):
                source = sweep.source[edge]
                moved = _soonest_elsewhere(sweep, source, kind) + sweep.cost[edge]
                start = max(start, min(sweep.end[source, kind], moved))
            if start > 0.0:
                start = _least_start(sweep, op, kind, start)
            end = start + sweep.seconds[op, kind]
            if sweep.before[op] >= 0:
                end = max(end, _end_of_walk(sweep, op, kind))
            sweep.end[op, kind] = end
            sweep.soonest[op] = min(sweep.soonest[op], end)


@compiled
def _start_in_chain(sweep: _Sweep, op: int) -> float:
    """Argument 4: the least start of an op of the chain; 0 for others."""
    start = 0.0
    place = sweep.place[op]
    for earlier in range(place):
        ended = sweep.soonest[sweep.chain[earlier]]
        start = max(start, ended + sweep.between[earlier, place])
    return start


@compiled
def _soonest_elsewhere(sweep: _Sweep, op: int, kind: int) -> float:
    """How soon the op ends on a device that is not the one of class `kind` at hand."""
    if sweep.num_devices[kind] > 1:
        return sweep.soonest[op]
    soonest = np.inf
    for other in range(len(sweep.num_devices)):
        if other != kind:
            soonest = min(soonest, sweep.end[op, other])
    return soonest


@compiled
def _note_inputs(sweep: _Sweep, op: int) -> None:
    """Finds the input that ends last; the others are this op's unless an earlier op has them."""
    latest = -1.0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if sweep.soonest[source] > latest:
            latest = sweep.soonest[source]
            sweep.before[op] = source
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if source != sweep.before[op] and sweep.owner[source] < 0:
            sweep.owner[source] = op


@compiled
def _least_start(sweep: _Sweep, op: int, kind: int, start: float) -> float:
    """Argument 2: the least start of an op on a class that does not contradict itself.

    An ancestor is on the op's device while the start is below its threshold. So, with thresholds
    t_1 <= t_2 <= .. and Q_i the queue of the ancestors i, i + 1, .., the start is
    max(t_{i-1}, Q_i) for the first i with Q_i < t_i; Q falls and t rises, hence bisection.
    """
    count = _ancestors_here(sweep, op, kind, start)
    _sort_ancestors(sweep, count)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _queue_end(sweep, count, sweep.by_threshold[middle]) < sweep.by_threshold[middle]:
            high = middle
        else:
            low = middle + 1
    if low > 0:
        start = max(start, sweep.by_threshold[low - 1])
    if low < count:
        start = max(start, _queue_end(sweep, count, sweep.by_threshold[low]))
    return start


@compiled
def _ancestors_here(sweep: _Sweep, op: int, kind: int, start: float) -> int:
    """Lists the ancestors that lie on the op's device if it starts at `start`; their number.

    From the latest to the first: all users that matter of an op are seen before it. One that may
    lie elsewhere ends the search there: its own ancestors have no less time than it has.
    """
    waiting = 0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        waiting = _meet(sweep, op * len(sweep.slots) + kind, sweep.source[edge], waiting)
        source = sweep.source[edge]
        sweep.leave[source] = max(sweep.leave[source], sweep.cost[edge])
    count = 0
    for _ in range(MAX_ANCESTORS):
        if waiting == 0:
            break
        ancestor = -sweep.queue[0]
        waiting = pop_key(sweep.queue, 0, waiting)
        if sweep.group[ancestor] >= 0 and sweep.group[ancestor] == sweep.group[op]:
            sweep.leave[ancestor] = np.inf
        threshold = _soonest_elsewhere(sweep, ancestor, kind) + sweep.leave[ancestor]
        if threshold <= start:
            continue
        sweep.threshold[count] = threshold
        sweep.head[count] = sweep.end[ancestor, kind] - sweep.seconds[ancestor, kind]
        if sweep.end[ancestor, kind] == np.inf:
            sweep.head[count] = np.inf
        sweep.work[count] = sweep.seconds[ancestor, kind] / sweep.slots[kind]
        count += 1
        least, here = sweep.least[ancestor], sweep.seconds[ancestor, kind]
        stay, leave = sweep.stay[ancestor], sweep.leave[ancestor]
        for edge in range(sweep.row[ancestor], sweep.row[ancestor + 1]):
            source = sweep.source[edge]
            waiting = _meet(sweep, op * len(sweep.slots) + kind, source, waiting)
            sweep.stay[source] = max(sweep.stay[source], stay + least)
            moved = min(here + stay + sweep.cost[edge], least + leave)
            sweep.leave[source] = max(sweep.leave[source], moved)
    return count


@compiled
def _meet(sweep: _Sweep, walk: int, ancestor: int, waiting: int) -> int:
    """Queues an ancestor that this walk has not met; the new length of the queue."""
    if sweep.seen[ancestor] == walk:
        return waiting
    sweep.seen[ancestor] = walk
    sweep.stay[ancestor] = 0.0
    sweep.leave[ancestor] = 0.0
    return push_key(sweep.queue, 0, waiting, -ancestor)


@compiled
def _sort_ancestors(sweep: _Sweep, count: int) -> None:
    """Sorts the listed ancestors by head, latest first, and their thresholds."""
    for index in range(count):
        push_event(sweep.by_head_time, sweep.heap_key, index, sweep.head[index], index)
    for index in range(count - 1, -1, -1):
        sweep.by_head[index] = sweep.heap_key[0]
        pop_event(sweep.by_head_time, sweep.heap_key, index + 1)
    for index in range(count):
        push_event(sweep.by_head_time, sweep.heap_key, index, sweep.threshold[index], index)
    for index in range(count):
        sweep.by_threshold[index] = sweep.by_head_time[0]
        pop_event(sweep.by_head_time, sweep.heap_key, count - index)


@compiled
def _queue_end(sweep: _Sweep, count: int, threshold: float) -> float:
    """When a device is done with the ancestors whose threshold is at least this."""
    end = 0.0
    work = 0.0
    for position in range(count):
        index = sweep.by_head[position]
        if sweep.threshold[index] >= threshold:
            work += sweep.work[index]
            end = max(end, sweep.head[index] + work)
    return end


@compiled
def _end_of_walk(sweep: _Sweep, op: int, kind: int) -> float:
    """Argument 3: the least end of an op, over how far back its path stayed on its device."""
    for share in range(len(sweep.shares)):
        sweep.share_work[share] = 0.0
    walk = op * len(sweep.slots) + kind
    best, used, length, first = np.inf, 0.0, 0.0, np.inf
    here = op
    for _ in range(MAX_STEPS):
        if sweep.seconds[here, kind] == np.inf:
            return best  # so it ran elsewhere
        length += sweep.seconds[here, kind]
        if here != op:
            first = min(first, sweep.end[here, kind] - sweep.seconds[here, kind])
        first = min(first, _add_inputs(sweep, here, kind, walk))
        if first < np.inf:
            for share in range(len(sweep.shares)):
                used = max(used, first + sweep.share_work[share])
        before = sweep.before[here]
        if before < 0:
            return min(best, max(used, length))
        for edge in range(sweep.row[here], sweep.row[here + 1]):
            if sweep.source[edge] == before:
                moved = _soonest_elsewhere(sweep, before, kind) + sweep.cost[edge]
                best = min(best, max(moved + length, used))
        if used >= best:
            return best
        here = before
    return min(best, used)


@compiled
def _add_inputs(sweep: _Sweep, op: int, kind: int, walk: int) -> float:
    """Adds an op of the path and its other inputs to share_work; the least head of the inputs.

    An op that was added as an input of a later op of the path, and now turns out to lie on the
    path itself, counts as part of the path only.
    """
    for share in range(len(sweep.shares)):
        machine = sweep.shares[share]
        sweep.share_work[share] += machine * sweep.seconds[op, kind] / sweep.slots[kind]
        if sweep.added[op] == walk:
            sweep.share_work[share] -= _taken(sweep, sweep.added_edge[op], kind, machine)
    first = np.inf
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if sweep.owner[source] != op or sweep.added[source] == walk:
            continue
        sweep.added[source] = walk
        sweep.added_edge[source] = edge
        made = np.inf
        if sweep.end[source, kind] < np.inf:
            made = sweep.end[source, kind] - sweep.seconds[source, kind]
        first = min(first, min(made, _soonest_elsewhere(sweep, source, kind)))
        for share in range(len(sweep.shares)):
            machine = sweep.shares[share]
            sweep.share_work[share] += _taken(sweep, edge, kind, machine)
    return first


@compiled
def _taken(sweep: _Sweep, edge: int, kind: int, machine: float) -> float:
    """What an input takes at least of a machine and a way in that are weighed machine to 1."""
    source = sweep.source[edge]
    taken = (1.0 - machine) * sweep.hold[edge]
    if sweep.end[source, kind] < np.inf:
        taken = min(taken, machine * sweep.seconds[source, kind] / sweep.slots[kind])
    return taken

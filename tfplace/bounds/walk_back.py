"""Argument 3 of the path bound: the path to an op stayed on its device, or left it somewhere.

Walk back from op v on a device of class k, each time to the input that ends last: v_1 .. v_m = v.
Say that v's device has run v_s .. v_m, and v_{s-1} ran elsewhere. Then its transfer lies between,

    end(v) >= E'(v_{s-1}) + c + seconds(v_s) + .. + seconds(v_m).

Each other input u of v_s .. v_m was computed on v's device or came through its way in. Let h be the
least time at which any of v_s .. v_{m-1} or of these inputs can start here, or an input end
elsewhere. From h to end(v) neither the machine nor the way in can be used for more than all the
time. So with y the share of the machine and 1 - y that of the way in, for any y in [0, 1],

    end(v) >= h + y sum_i seconds(v_i) / slots + sum_u min(y seconds(u) / slots, (1 - y) hold(u)).

Whichever s holds, end(v) is at least the greater of the two; the least of that over all s is the
bound. An op that is input of several ops counts once, for the first of them (its owner).
"""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.relaxation import DeviceClasses, Edges

# So many ops are walked back; with fewer the bound is weaker and still true.
MAX_STEPS = 300

# Shares y that are tried: 0, 1/8, .. 1, and those that fit so many of the inputs.
EVEN_SHARES = 9
INPUT_SHARES = 12


class Walk(NamedTuple):
    """Where the walks go, and what they have counted.

    Attributes:
      before: i8[N] the input that ends last, -1 for none.
      owner: i8[N] the first op that has this op as another input, -1 for none.
      added: i8[N] number of the walk that last counted the op as another input.
      added_edge: i8[N] the edge by which it did.
      shares: f8[Y] values of y, ascending.
      share_work: f8[Y] for each y: what the path and its other inputs take in this walk.
    """

    before: LongArray
    owner: LongArray
    added: LongArray
    added_edge: LongArray
    shares: FloatArray
    share_work: FloatArray


def new_walk(sweep: "Sweep") -> Walk:
    """Scratch for walks in a sweep."""
    num_ops = len(sweep.least)
    shares = _shares(sweep.least[sweep.source], sweep.hold)
    return Walk(
        before=np.full(num_ops, -1, dtype=np.int64),
        owner=np.full(num_ops, -1, dtype=np.int64),
        added=np.full(num_ops, -1, dtype=np.int64),
        added_edge=np.zeros(num_ops, dtype=np.int64),
        shares=shares,
        share_work=np.zeros(len(shares)),
    )


def _shares(seconds: FloatArray, hold: FloatArray) -> FloatArray:
    """f8[Y] ascending: shares y at which inputs of much work cost as much here as moved.

    Any y in [0, 1] gives a bound. An input takes the most where y seconds = (1 - y) hold. Of these
    y, each weighed by what it takes there, evenly spaced ones are chosen.

    Args:
      seconds: f8[E] least seconds of each edge's source, inf where it has no device.
      hold: f8[E].
    """
    counts = np.isfinite(seconds) & (seconds > 0.0) & (hold > 0.0)
    seconds, hold = seconds[counts], hold[counts]
    even = np.linspace(0.0, 1.0, EVEN_SHARES)
    if not len(hold):
        return even
    share = hold / (hold + seconds)
    order = np.argsort(share)
    taken = np.cumsum((share * seconds)[order])
    steps = (np.arange(INPUT_SHARES) + 0.5) / INPUT_SHARES * taken[-1]
    chosen = np.minimum(np.searchsorted(taken, steps), len(order) - 1)
    return np.unique(np.concatenate([even, share[order[chosen]]]))


@compiled_part
def note_inputs(sweep: "Sweep", walk: Walk, op: int) -> None:
    """Finds the input that ends last; the others are this op's unless an earlier op has them."""
    latest = -1.0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if sweep.soonest[source] > latest:
            latest = sweep.soonest[source]
            walk.before[op] = source
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if source != walk.before[op] and walk.owner[source] < 0:
            walk.owner[source] = op


@compiled_part
def end_of_walk(sweep: "Sweep", walk: Walk, op: int, kind: int) -> float:
    """The least end of an op on a class, over how far back its path stayed on its device."""
    for share in range(len(walk.shares)):
        walk.share_work[share] = 0.0
    number = op * len(sweep.slots) + kind
    best, used, length, first = np.inf, 0.0, 0.0, np.inf
    here = op
    for _ in range(MAX_STEPS):
        if sweep.seconds[here, kind] == np.inf:
            return best  # it can't have stayed any longer
        length += sweep.seconds[here, kind]
        if here != op:
            first = min(first, sweep.end[here, kind] - sweep.seconds[here, kind])
        first = min(first, _add_inputs(sweep, walk, here, kind, number))
        if first < np.inf:
            for share in range(len(walk.shares)):
                used = max(used, first + walk.share_work[share])
        before = walk.before[here]
        if before < 0:
            return min(best, max(used, length))
        for edge in range(sweep.row[here], sweep.row[here + 1]):
            if sweep.source[edge] == before:
                moved = soonest_elsewhere(sweep, before, kind) + sweep.cost[edge]
                best = min(best, max(moved + length, used))
        if used >= best:
            return best  # `used` only grows: no earlier s gives less
        here = before
    return min(best, used)


@compiled_part
def _add_inputs(sweep: "Sweep", walk: Walk, op: int, kind: int, number: int) -> float:
    """Adds an op of the path and its other inputs to share_work; the least head of the inputs.

    An op that was added as an input of a later op of the path, and now turns out to lie on the
    path itself, counts as part of the path only.
    """
    for share in range(len(walk.shares)):
        machine = walk.shares[share]
        walk.share_work[share] += machine * sweep.seconds[op, kind] / sweep.slots[kind]
        if walk.added[op] == number:
            walk.share_work[share] -= _taken(sweep, walk.added_edge[op], kind, machine)
    first = np.inf
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        if walk.owner[source] != op or walk.added[source] == number:
            continue
        walk.added[source] = number
        walk.added_edge[source] = edge
        arrives = soonest_elsewhere(sweep, source, kind)
        first = min(first, min(head_on(sweep, source, kind), arrives))
        for share in range(len(walk.shares)):
            machine = walk.shares[share]
            walk.share_work[share] += _taken(sweep, edge, kind, machine)
    return first


@compiled_part
def _taken(sweep: "Sweep", edge: int, kind: int, machine: float) -> float:
    """What an input takes at least, with the machine's share y = `machine`."""
    source = sweep.source[edge]
    taken = (1.0 - machine) * sweep.hold[edge]
    if sweep.end[source, kind] < np.inf:
        taken = min(taken, machine * sweep.seconds[source, kind] / sweep.slots[kind])
    return taken


class Sweep(NamedTuple):
    """The relaxed problem, and how soon the ops visited so far can end.

    Attributes:
      row: i8[N+1] of Edges.
      source: i8[E] of Edges.
      cost: f8[E] of Edges.
      hold: f8[E] of Edges.
      seconds: f8[N, K] of each op on each class.
      least: f8[N] the least of them.
      slots: f8[K] of one device of a class.
      num_devices: i8[K] of a class.
      group: i8[N] colocation group, -1 for none.
      end: f8[N, K] filled in: no schedule ends the op sooner on a device of this class.
      soonest: f8[N] filled in: the least of them.
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


def new_sweep(classes: DeviceClasses, edges: Edges, group: LongArray) -> Sweep:
    """A sweep that has not visited any op."""
    return Sweep(
        row=edges.row,
        source=edges.source,
        cost=edges.cost,
        hold=edges.hold,
        seconds=classes.seconds,
        least=classes.seconds.min(axis=1),
        slots=classes.slots,
        num_devices=classes.num_devices,
        group=group,
        end=np.full(classes.seconds.shape, np.inf),
        soonest=np.full(len(classes.seconds), np.inf),
    )


@compiled_part
def soonest_elsewhere(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can end on any device but one certain device of class `kind`."""
    if sweep.num_devices[kind] > 1:
        return sweep.soonest[op]
    soonest = np.inf
    for other in range(len(sweep.num_devices)):
        if other != kind:
            soonest = min(soonest, sweep.end[op, other])
    return soonest


@compiled_part
def head_on(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can start on a device of class `kind`; inf where it can't run there."""
    if sweep.end[op, kind] == np.inf:
        return np.inf
    return sweep.end[op, kind] - sweep.seconds[op, kind]

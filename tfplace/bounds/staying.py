"""Argument 2 of the path bound: ancestors that must lie on an op's device queue there before it.

docs/bounds.md has the argument, whose letters are used here.
"""

from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.relaxation import Sweep, head_on, soonest_elsewhere
from tfplace.simulation.event_heap import pop_event, pop_key, push_event, push_key

# So many ancestors of an op are looked at; with fewer the bound is weaker and still true.
MAX_ANCESTORS = 3000


class Ancestors(NamedTuple):
    """Scratch for the ancestors of one op v on one class; A of them are listed.

    Attributes:
      seen: i8[N] number of the last op and class for which an op was met.
      stay: f8[N] least seconds from the op's end to v's start.
      leave: f8[N] the same if the op does not lie on v's device.
      queue: i8[N+1] heap of the ops that are still to be looked at, latest in the graph first.
      threshold: f8[A] v's device has the ancestor if v starts before this.
      head: f8[A] how soon the ancestor starts on v's device.
      work: f8[A] its seconds there over the slots.
      by_head: i8[A] the listed ancestors, latest head first.
      by_threshold: f8[A] thresholds, ascending.
      heap_time: f8[A] scratch for sorting.
      heap_key: i8[A] scratch for sorting.
    """

    seen: LongArray
    stay: FloatArray
    leave: FloatArray
    queue: LongArray
    threshold: FloatArray
    head: FloatArray
    work: FloatArray
    by_head: LongArray
    by_threshold: FloatArray
    heap_time: FloatArray
    heap_key: LongArray


def new_ancestors(num_ops: int) -> Ancestors:
    """Scratch for a graph of so many ops."""
    return Ancestors(
        seen=np.full(num_ops, -1, dtype=np.int64),
        stay=np.zeros(num_ops),
        leave=np.zeros(num_ops),
        queue=np.empty(num_ops + 1, dtype=np.int64),
        threshold=np.zeros(num_ops),
        head=np.zeros(num_ops),
        work=np.zeros(num_ops),
        by_head=np.empty(num_ops, dtype=np.int64),
        by_threshold=np.zeros(num_ops),
        heap_time=np.zeros(num_ops),
        heap_key=np.empty(num_ops, dtype=np.int64),
    )


@compiled_part
def start_after_staying(
    sweep: Sweep, ancestors: Ancestors, op: int, kind: int, start: float
) -> float:
    """The least start of an op on a class, at least `start`, that does not contradict itself.

    With thresholds t_1 <= t_2 <= .. and Q_i the end of the queue of the ancestors i, i + 1, ..,
    that is max(t_{i-1}, Q_i) for the first i with Q_i < t_i. Q falls and t rises with i, so i is
    found by bisection.
    """
    count = _list_ancestors(sweep, ancestors, op, kind, start)
    _sort(ancestors, count)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        threshold = ancestors.by_threshold[middle]
        if _queue_end(ancestors, count, threshold) < threshold:
            high = middle
        else:
            low = middle + 1
    if low > 0:
        start = max(start, ancestors.by_threshold[low - 1])
    if low < count:
        start = max(start, _queue_end(ancestors, count, ancestors.by_threshold[low]))
    return start


@compiled_part
def _list_ancestors(sweep: Sweep, ancestors: Ancestors, op: int, kind: int, start: float) -> int:
    """Lists the ancestors that lie on the op's device if it starts at `start`; their number.

    They are looked at from the latest to the first in the graph, so that all users of an op that
    are on the list have been seen before it. One that may lie elsewhere ends the search in its
    direction: its own ancestors have no less time than it has.
    """
    visit = op * len(sweep.slots) + kind
    waiting = 0
    for edge in range(sweep.row[op], sweep.row[op + 1]):
        source = sweep.source[edge]
        waiting = _meet(ancestors, visit, source, waiting)
        ancestors.leave[source] = max(ancestors.leave[source], sweep.cost[edge])
    count = 0
    for _ in range(MAX_ANCESTORS):
        if waiting == 0:
            break
        ancestor = -ancestors.queue[0]
        waiting = pop_key(ancestors.queue, 0, waiting)
        if sweep.group[ancestor] >= 0 and sweep.group[ancestor] == sweep.group[op]:
            ancestors.leave[ancestor] = np.inf  # colocated: it can't lie elsewhere
        threshold = soonest_elsewhere(sweep, ancestor, kind) + ancestors.leave[ancestor]
        if threshold <= start:
            continue
        ancestors.threshold[count] = threshold
        ancestors.head[count] = head_on(sweep, ancestor, kind)
        ancestors.work[count] = sweep.seconds[ancestor, kind] / sweep.slots[kind]
        count += 1
        waiting = _meet_inputs(sweep, ancestors, visit, ancestor, waiting)
    return count


@compiled_part
def _meet_inputs(
    sweep: Sweep, ancestors: Ancestors, visit: int, ancestor: int, waiting: int
) -> int:
    """Queues the inputs of an ancestor, with what passes between their end and v's start.

    An input that lies elsewhere than v either pays its transfer to the ancestor, which runs on v's
    device, or the ancestor lies elsewhere, too.
    """
    kind = visit % len(sweep.slots)
    least, here = sweep.least[ancestor], sweep.seconds[ancestor, kind]
    stay, leave = ancestors.stay[ancestor], ancestors.leave[ancestor]
    for edge in range(sweep.row[ancestor], sweep.row[ancestor + 1]):
        source = sweep.source[edge]
        waiting = _meet(ancestors, visit, source, waiting)
        ancestors.stay[source] = max(ancestors.stay[source], stay + least)
        moved = min(here + stay + sweep.cost[edge], least + leave)
        ancestors.leave[source] = max(ancestors.leave[source], moved)
    return waiting


@compiled_part
def _meet(ancestors: Ancestors, visit: int, ancestor: int, waiting: int) -> int:
    """Queues an ancestor unless this visit has met it; the new length of the queue."""
    if ancestors.seen[ancestor] == visit:
        return waiting
    ancestors.seen[ancestor] = visit
    ancestors.stay[ancestor] = 0.0
    ancestors.leave[ancestor] = 0.0
    return push_key(ancestors.queue, 0, waiting, -ancestor)


@compiled_part
def _sort(ancestors: Ancestors, count: int) -> None:
    """Sorts the listed ancestors by head, and their thresholds, with a heap: it needs no memory."""
    times, keys = ancestors.heap_time, ancestors.heap_key
    for index in range(count):
        push_event(times, keys, index, ancestors.head[index], index)
    for index in range(count - 1, -1, -1):
        ancestors.by_head[index] = keys[0]
        pop_event(times, keys, index + 1)
    for index in range(count):
        push_event(times, keys, index, ancestors.threshold[index], index)
    for index in range(count):
        ancestors.by_threshold[index] = times[0]
        pop_event(times, keys, count - index)


@compiled_part
def _queue_end(ancestors: Ancestors, count: int, threshold: float) -> float:
    """When a device is done with the ancestors whose threshold is at least this."""
    end = 0.0
    work = 0.0
    for position in range(count):
        index = ancestors.by_head[position]
        if ancestors.threshold[index] >= threshold:
            work += ancestors.work[index]
            end = max(end, ancestors.head[index] + work)
    return end

"""Argument 3 of the path bound: what runs between two ops of a chain takes all devices' time.

docs/bounds.md has the argument, whose letters are used here.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, LongArray
from tfplace.bounds.load_bound import DualWeights, least_costs
from tfplace.bounds.relaxation import DeviceClasses, Edges

# Of a longer chain so many ops are taken, evenly: memory and time grow with their square.
MAX_CHAIN = 1000


@dataclasses.dataclass(frozen=True)
class EnclosedWork:
    """A chain and what lies between its ops.

    Attributes:
      chain: i8[P] ops, each of which waits for all before it.
      seconds: f8[P, P]: from the end of chain[i] to the start of chain[j] at least, for i < j.
    """

    chain: LongArray
    seconds: FloatArray


def enclosed_work(
    classes: DeviceClasses, edges: Edges, weights: Sequence[DualWeights]
) -> EnclosedWork:
    """The longest chain by the ops' least seconds, and the most that any of `weights` shows.

    Args:
      classes: seconds of ops, at least one.
      edges: forward ones.
      weights: at least one.
    """
    chain = longest_chain(edges, classes.seconds.min(axis=1))
    size, place = len(chain), np.full(len(classes.seconds), -1, dtype=np.int64)
    place[chain] = np.arange(size)
    after, until = place.copy(), np.where(place < 0, size, place)
    _spread(edges.row, edges.source, place, after, until)
    is_inner = (place < 0) & (after >= 0) & (until < size)
    cell = after[is_inner] * size + until[is_inner]
    seconds = np.zeros((size, size))
    for each in weights:
        cost = least_costs(classes.seconds, each)
        table = np.bincount(cell, weights=cost[is_inner], minlength=size * size).astype(np.float64)
        # An op between chain[a] and chain[u] lies between i and j for all i <= a and j >= u.
        inner = table.reshape(size, size)[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
        links = np.cumsum(cost[chain])
        inner += np.maximum(links[None, :] - cost[chain][None, :] - links[:, None], 0.0)
        np.maximum(seconds, inner, out=seconds)
    return EnclosedWork(chain, seconds)


def reversed_in_time(forward: EnclosedWork, num_ops: int) -> EnclosedWork:
    """The same of the graph with time reversed: op n stands for op num_ops - 1 - n."""
    return EnclosedWork(
        chain=np.ascontiguousarray(num_ops - 1 - forward.chain[::-1]),
        seconds=np.ascontiguousarray(forward.seconds[::-1, ::-1].T),
    )


def longest_chain(edges: Edges, seconds: FloatArray) -> LongArray:
    """i8[P]: at most MAX_CHAIN ops of the path that takes longest, first to last.

    Args:
      edges: forward ones.
      seconds: f8[N] of each op.
    """
    size = len(seconds)
    before, path = np.full(size, -1, dtype=np.int64), np.empty(size, dtype=np.int64)
    length = _longest_path(edges.row, edges.source, seconds, np.zeros(size), before, path)
    chain = path[:length][::-1]
    if length > MAX_CHAIN:
        chain = chain[np.linspace(0, length - 1, MAX_CHAIN).astype(np.int64)]
    return np.ascontiguousarray(chain)


@compiled
def _longest_path(
    row: LongArray,
    source: LongArray,
    seconds: FloatArray,
    end: FloatArray,
    before: LongArray,
    path: LongArray,
) -> int:
    """Fills end f8[N], before i8[N] and path, last op first; the path's length."""
    last = 0
    for op in range(len(seconds)):
        for edge in range(row[op], row[op + 1]):
            if before[op] < 0 or end[source[edge]] > end[before[op]]:
                before[op] = source[edge]
        end[op] = seconds[op]
        if before[op] >= 0:
            end[op] += end[before[op]]
        if end[op] > end[last]:
            last = op
    count = 0
    op = last
    while op >= 0:
        path[count] = op
        count += 1
        op = before[op]
    return count


@compiled
def _spread(
    row: LongArray, source: LongArray, place: LongArray, after: LongArray, until: LongArray
) -> None:
    """The last op of the chain for which each op waits, and the first that waits for it."""
    num_ops = len(place)
    for op in range(num_ops):
        if place[op] < 0:
            for edge in range(row[op], row[op + 1]):
                after[op] = max(after[op], after[source[edge]])
    for op in range(num_ops - 1, -1, -1):
        for edge in range(row[op], row[op + 1]):
            until[source[edge]] = min(until[source[edge]], until[op])

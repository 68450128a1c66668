"""The inputs of all ops of a graph or a function's body as arrays, made in one pass over names."""

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Collection, Sequence

import numpy as np

from graphs.names import parse_input
from graphs.op_graph import IntArray, LongArray
from graphs.protos import NodeDef

_MOST_OUTPUTS = 1 << 31
Indices = IntArray | LongArray


@dataclasses.dataclass(frozen=True)
class GraphEdges:
    """Who reads what and who waits for whom, in the order of the nodes and of their inputs.

    Attributes:
      producer: i8[E] index of the node that is read or waited for; -1 where there is none, as for
        an argument of a function, or the name is none of an input.
      output: i8[E] which of its outputs, in a body of those that the input names; -1 for a control
        edge.
      first: i8[nodes + 1] where the inputs of each node begin.
    """

    producer: LongArray
    output: LongArray
    first: LongArray

    @functools.cached_property
    def consumer(self) -> LongArray:
        """i8[E]: index of the node that has the input."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def edges_of(nodes: Sequence[NodeDef]) -> GraphEdges:
    """The edges between NodeDefs of one graph or body."""
    return edges_between([node.name for node in nodes], [node.input for node in nodes])


def edges_between(names: Sequence[str], inputs: Sequence[Collection[str]]) -> GraphEdges:
    """The edges between ops of these names, of which each has these inputs."""
    codes = _Codes(names)
    code = np.array([codes[name] for each in inputs for name in each], dtype=np.int64)
    producer, output = np.divmod(code, _MOST_OUTPUTS)
    first = np.zeros(len(inputs) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in inputs], out=first[1:])
    return GraphEdges(producer, output - 1, first)


def in_order(
    producer: Indices, consumer: Indices, count: int, lowest_first: bool = False
) -> list[int]:
    """Ops in a topological order; what waits for a cycle is left out.

    Args:
      producer, consumer: i8[E] of the edges that count.
      count: of ops.
      lowest_first: of several that could be next the lowest op is, not what could be first.
    """
    come = itertools.count()
    source, user = np.divmod(np.unique(producer.astype(np.int64) * count + consumer), max(count, 1))
    first_user, users = row_starts(source, count).tolist(), user.tolist()
    waiting = np.bincount(user, minlength=count).tolist()
    ready = [(op if lowest_first else next(come), op) for op in range(count) if not waiting[op]]
    ordered = []
    while ready:
        _, op = heapq.heappop(ready)
        ordered.append(op)
        for each in users[first_user[op] : first_user[op + 1]]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, (each if lowest_first else next(come), each))
    return ordered


class _Codes(dict[str, int]):
    """{name of an input: index of its op * _MOST_OUTPUTS + output + 1}; a name is read once."""

    def __init__(self, ops: Sequence[str]) -> None:
        super().__init__((op, number * _MOST_OUTPUTS + 1) for number, op in enumerate(ops))

    def __missing__(self, name: str) -> int:
        try:
            source = parse_input(name)
        except ValueError:
            source = None
        if source is None or source.output >= _MOST_OUTPUTS - 1:
            code = -_MOST_OUTPUTS
        else:
            code = self.get(source.op, 1 - _MOST_OUTPUTS) + source.output
        self[name] = code
        return code


def row_starts(owners: Indices, size: int) -> LongArray:
    """i8[size+1]: where each owner's items begin among items that are sorted by owner.

    Args:
      owners: the owner of each item, 0 .. size-1, in any order.
      size: how many owners there are.
    """
    rows = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=size), out=rows[1:])
    return rows

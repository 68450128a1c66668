"""The look-ups in a GraphDef that finding its run, its variables and its inputs needs."""

import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from graphs import op_types
from graphs.building.op_outputs import num_outputs
from graphs.counted import counted
from graphs.errors import FetchError, ModelError
from graphs.function_library import library_of
from graphs.graph_edges import edges_of
from graphs.host.did_you_mean import nearest
from graphs.names import op_of, source_of
from graphs.protos import GraphDef, Library, Nodes


class GraphView:
    """Look-ups in one GraphDef, which must not change while this lives."""

    def __init__(self, graph_def: GraphDef):
        """Raises ModelError where two ops have one name or an input does not exist."""
        self.graph_def = graph_def
        self.nodes: Nodes = {node.name: node for node in graph_def.node}
        self.library: Library = library_of(graph_def)
        if len(self.nodes) < len(graph_def.node):
            raise ModelError(
                "reading the graph: two ops have the same name; names must be unique, "
                "save the model again"
            )
        self._names = list(self.nodes)
        self._edges = edges = edges_of(graph_def.node)
        for edge in np.flatnonzero(edges.producer < 0)[:1].tolist():
            node = graph_def.node[edges.consumer[edge]]
            name = node.input[edge - edges.first[edges.consumer[edge]]]
            raise ModelError(
                f"reading the graph: op {node.name!r} uses {name!r}, which is not "
                "defined; the model is damaged or was cut, save it again"
            )

    @functools.cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """{op: the ops that use one of its outputs or wait for it}."""
        users: dict[str, list[str]] = {name: [] for name in self.nodes}
        pairs = self._edges.producer * len(self._names) + self._edges.consumer
        for pair in np.unique(pairs).tolist():
            producer, consumer = divmod(pair, len(self._names))
            users[self._names[producer]].append(self._names[consumer])
        return users

    def ancestors(self, fetches: Iterable[str], fed: Collection[str] = ()) -> dict[str, None]:
        """The ops that running `fetches` runs, in an order that is always the same.

        Args:
          fetches: tensors "op:i" or ops.
          fed: ops whose outputs are all fed. They count as reached, but not what they use.

        Raises:
          FetchError: an op of `fetches` is not in the main graph.
        """
        fetches = list(fetches)
        for fetch in fetches:
            if op_of(fetch) not in self.nodes:
                self.check_tensor(fetch, "fetch")
        number_of, producer, first = self._reads
        cut = {number_of[name] for name in fed if name in number_of}
        found = reached(
            (number_of[op_of(fetch)] for fetch in fetches),
            lambda op: () if op in cut else producer[first[op] : first[op + 1]],
        )
        return dict.fromkeys(self._names[op] for op in found)

    @functools.cached_property
    def _reads(self) -> tuple[Mapping[str, int], Sequence[int], Sequence[int]]:
        """{op: its number}, what all ops read, one after another, and where that of each begins."""
        numbers = {name: number for number, name in enumerate(self._names)}
        return numbers, self._edges.producer.tolist(), self._edges.first.tolist()

    def descendants(self, ops: Iterable[str]) -> set[str]:
        """`ops` and everything that uses or waits for them, directly or not."""
        return set(reached(ops, self.users.__getitem__))

    def variable_of(self, tensor: str) -> str:
        """The variable op whose handle or reference a tensor is; empty for any other tensor."""
        op = op_of(source_of(tensor, self.nodes, op_types.SAME))
        return op if self.nodes[op].op in op_types.VARIABLES else ""

    def check_tensor(self, name: str, what: str) -> None:
        """Raises FetchError unless a tensor "op:i" or an op is in the main graph."""
        op, _, index = name.partition(":")
        if op not in self.nodes:
            raise FetchError(
                f"looking up the {what} {name!r}: the graph has no op {op!r}"
                f"{nearest(op, self.nodes)}; name one of its {len(self.nodes):,} ops"
            )
        if index and not index.isdigit():
            raise FetchError(
                f"looking up the {what} {name!r}: wanted OP or OP:OUTPUT with a number, "
                f"such as {op + ':0'!r}"
            )
        if index and int(index) >= (count := num_outputs(self.nodes[op], self.library)):
            hint = "" if count else ", it can only be run: name it without an index"
            raise FetchError(
                f"looking up the {what} {name!r}: {op!r} ({self.nodes[op].op}) has "
                f"{counted(count, 'output')}{hint}"
            )


Item = TypeVar("Item", bound=Hashable)


def reached(starts: Iterable[Item], leads_to: Callable[[Item], Iterable[Item]]) -> dict[Item, None]:
    """The starts and all that they lead to, each once, in an order that is always the same."""
    found = dict.fromkeys(starts)
    pending = list(found)
    while pending:
        for item in leads_to(pending.pop()):
            if item not in found:
                found[item] = None
                pending.append(item)
    return found

"""The look-ups in a GraphDef that finding its run, its variables and its inputs needs."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.op_outputs import num_outputs
from graphs.errors import FetchError, ModelError
from graphs.function_library import library_of
from graphs.host.did_you_mean import nearest
from graphs.names import op_of, source_of
from graphs.reached import reached


class GraphView:
    """Look-ups in one GraphDef, which must not change while this lives."""

    def __init__(self, graph_def: Any):
        """Raises ModelError where two ops have one name or an input does not exist."""
        self.graph_def = graph_def
        self.nodes: Mapping[str, Any] = {node.name: node for node in graph_def.node}
        self.library: Mapping[str, Any] = library_of(graph_def)
        if len(self.nodes) < len(graph_def.node):
            raise ModelError(
                "reading the graph: two ops have the same name; names must be unique, "
                "save the model again"
            )
        for node in graph_def.node:
            for name in node.input:
                if op_of(name) not in self.nodes:
                    raise ModelError(
                        f"reading the graph: op {node.name!r} uses {name!r}, which is not "
                        "defined; the model is damaged or was cut, save it again"
                    )

    @functools.cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """{op: the ops that use one of its outputs or wait for it}."""
        users: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.graph_def.node:
            for source in dict.fromkeys(op_of(name) for name in node.input):
                users[source].append(node.name)
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
        return reached(
            map(op_of, fetches),
            lambda name: () if name in fed else map(op_of, self.nodes[name].input),
        )

    def descendants(self, ops: Iterable[str]) -> set[str]:
        """`ops` and everything that uses or waits for them, directly or not."""
        return set(reached(ops, self.users.__getitem__))

    def variable_of(self, tensor: str) -> str:
        """The variable op whose handle or reference a tensor is; empty for any other tensor."""
        op = op_of(source_of(tensor, self.nodes, op_types.SAME))
        return op if self.nodes[op].op in op_types.VARIABLES else ""

    def check_tensor(self, name: str, what: str) -> None:
        """Checks that a tensor "op:i" or an op is in the main graph.

        Raises:
          FetchError: it is not.
        """
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
            raise FetchError(
                f"looking up the {what} {name!r}: {op!r} ({self.nodes[op].op}) has {count} outputs"
                f"{', it can only be run: name it without an index' if not count else ''}"
            )

"""The passes that take an order's control edges out of a graph and write others into it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection
from typing import Any

from graphs.errors import PlacementError
from rewrite.annotate_devices import bodies
from rewrite.call_graph import CallGraph
from rewrite.order.order_edges import (
    MARK,
    OrderEdge,
    add_marked,
    check_order,
    forget,
    marked,
    placed_edges,
)
from rewrite.pass_base import PassResult, RewriteError, op_path


@dataclasses.dataclass(frozen=True)
class ClearOrder:
    """Takes an order out of all bodies: what an earlier placement has written there.

    Attributes:
      keep: an op that waits for these, and by an order for no others, stays as it is.
    """

    keep: Collection[OrderEdge] = ()

    def requires(self, graph_def: Any) -> None:
        """Any GraphDef will do."""

    def __call__(self, graph_def: Any) -> PassResult:
        if not any(True for _ in self._to_clear(graph_def)):
            return PassResult(graph_def, modified=False)
        cleared = copy.deepcopy(graph_def)
        changed = []
        for function, node in list(self._to_clear(cleared)):
            forget(node)
            changed.append(op_path(function, node.name))
        return PassResult(cleared, modified=True, changed_ops=tuple(changed))

    def ensures(self, graph_def: Any, result: PassResult) -> None:
        for function, node in self._to_clear(result.graph_def):
            raise RewriteError(f"clearing the order: {op_path(function, node.name)!r} kept its own")

    def _to_clear(self, graph_def: Any) -> Any:
        kept: dict[tuple[str, str], set[str]] = {}
        for edges in placed_edges(CallGraph(graph_def), self.keep).values():
            for function, node, first in edges:
                kept.setdefault((function, node), set()).add(first)
        for function, nodes in bodies(graph_def):
            for node in nodes:
                if MARK in node.attr and set(marked(node)) != kept.get((function, node.name)):
                    yield function, node


@dataclasses.dataclass(frozen=True)
class AddOrder:
    """Adds control edges between ops of one body and one device.

    An op that waits for the other one by a control edge of its own gets no second one.

    Attributes:
      order: the edges; devices are written already.
    """

    order: Collection[OrderEdge]

    def requires(self, graph_def: Any) -> None:
        """Raises PlacementError for an edge that the graph has no place for."""
        for (first, then), places in placed_edges(CallGraph(graph_def), self.order).items():
            if not places:
                raise PlacementError(
                    f"ordering {then.node!r} after {first.node!r}: the graph has no body with "
                    "both; an order must be for this very graph, make it again with "
                    "`tfplace optimize`"
                )

    def __call__(self, graph_def: Any) -> PassResult:
        calls = CallGraph(graph_def)
        missing = {
            (function, node, first)
            for edges in placed_edges(calls, self.order).values()
            for function, node, first in edges
            if f"^{first}" not in calls.nodes(function)[node].input
        }
        if not missing:
            return PassResult(graph_def, modified=False)
        ordered = copy.deepcopy(graph_def)
        target = CallGraph(ordered)
        for function, node, first in sorted(missing):
            add_marked(target.nodes(function)[node], first)
        changed = dict.fromkeys(op_path(function, node) for function, node, _ in sorted(missing))
        return PassResult(ordered, modified=True, changed_ops=tuple(changed))

    def ensures(self, graph_def: Any, result: PassResult) -> None:
        check_order(result.graph_def, self.order)

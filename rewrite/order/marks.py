"""How a node says which of its control inputs are an order's."""

from __future__ import annotations

from typing import Any

from rewrite.clear_devices import bodies
from rewrite.pass_base import RewriteError, op_path

MARK = "_order_after"
"""The attribute that lists them; TensorFlow leaves names that begin like this to others."""

PlacedEdge = tuple[str, str, str]
"""(function, node, node that it waits for) as they stand in a GraphDef; "" is the main graph."""


def marked(node: Any) -> tuple[str, ...]:
    """The nodes that a node waits for only because of an order."""
    if MARK not in node.attr:
        return ()
    return tuple(name.decode(errors="replace") for name in node.attr[MARK].list.s)


def add_marked(node: Any, first: str) -> None:
    """Makes a node wait for another one of its body, and notes it."""
    node.input.append(f"^{first}")
    node.attr[MARK].list.s.append(first.encode())


def forget(node: Any) -> None:
    """Takes an order's inputs out of a node, and their mark.

    Raises:
      RewriteError: it is marked with what is no control input of it.
    """
    inputs = list(node.input)
    for first in marked(node):
        if f"^{first}" not in inputs:
            raise RewriteError(
                f"taking the order out of {node.name!r}: it is marked to wait for {first!r} and "
                "does not"
            )
        position = len(inputs) - 1 - inputs[::-1].index(f"^{first}")
        del inputs[position]
    if MARK in node.attr:
        del node.input[:]
        node.input.extend(inputs)
        del node.attr[MARK]


def order_of(graph_def: Any) -> list[PlacedEdge]:
    """All marked edges of a graph and its functions."""
    return [
        (function, node.name, first)
        for function, nodes in bodies(graph_def)
        for node in nodes
        for first in marked(node)
    ]


def forget_order(graph_def: Any) -> list[str]:
    """Takes all marked edges out of a graph in place; returns the paths of the changed ops."""
    changed = []
    for function, nodes in bodies(graph_def):
        for node in nodes:
            if MARK in node.attr:
                forget(node)
                changed.append(op_path(function, node.name))
    return changed


def without_order(graph_def: Any) -> Any:
    """The graph itself where nothing in it is marked, else a copy without the marked edges."""
    if not any(MARK in node.attr for _, nodes in bodies(graph_def) for node in nodes):
        return graph_def
    cleared = type(graph_def)()
    cleared.CopyFrom(graph_def)
    forget_order(cleared)
    return cleared

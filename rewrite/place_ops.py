"""One pass for graphs that call no function: devices and order are written in one copy.

A step of 64 shards has 180,000 ops in its main graph. To clear, annotate and order them one after
the other takes three copies of 200 MB and twenty walks through all nodes; there are no bodies to
specialise, so that one walk does all of it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from graphs.flat_graph import Origin
from rewrite.annotate_devices import device_of_place
from rewrite.call_graph import CallGraph
from rewrite.order.add_order import AddOrder
from rewrite.order.marks import MARK, add_marked, forget, marked
from rewrite.order.order_edges import OrderEdge
from rewrite.pass_base import PassResult, RewriteError


@dataclasses.dataclass(frozen=True)
class PlaceOps:
    """Exactly these devices and this order, in a graph without functions.

    It makes of the graph what ClearOrder, ClearDevices, AnnotateDevices and AddOrder make of it.

    Attributes:
      device_of_origin: {op: device}; all other ops get none.
      order: control edges between ops of one device.
    """

    device_of_origin: Mapping[Origin, str]
    order: Collection[OrderEdge] = ()

    def requires(self, graph_def: Any) -> None:
        """Raises PlacementError for an unknown op, or an edge that the graph has no place for."""
        if graph_def.library.function:
            raise RewriteError("placing ops: a graph with functions needs the other passes")
        AddOrder(self.order).requires(graph_def)

    def __call__(self, graph_def: Any) -> PassResult:
        devices = device_of_place(CallGraph(graph_def), self.device_of_origin)
        device_of = {node: device for (_, node), device in devices.items()}
        firsts: dict[str, set[str]] = {}
        for first, then in self.order:
            firsts.setdefault(then.node, set()).add(first.node)
        changed = [
            number
            for number, node in enumerate(graph_def.node)
            if _is_other(node, device_of, firsts)
        ]
        if not changed:
            return PassResult(graph_def, modified=False)
        placed = copy.deepcopy(graph_def)
        nodes = [placed.node[number] for number in changed]
        for node in nodes:
            _place(node, device_of.get(node.name, ""), firsts.get(node.name, set()))
        return PassResult(placed, modified=True, changed_ops=tuple(node.name for node in nodes))

    def ensures(self, graph_def: Any, result: PassResult) -> None:
        wanted = {origin.node: device for origin, device in self.device_of_origin.items()}
        for node in result.graph_def.node:
            if node.device != wanted.get(node.name, ""):
                raise RewriteError(f"placing ops: {node.name!r} has {node.device!r} afterwards")


def _is_other(node: Any, device_of: Mapping[str, str], firsts: Mapping[str, set[str]]) -> bool:
    """Whether anything is to be changed of a node."""
    wanted = firsts.get(node.name)
    if node.device != device_of.get(node.name, ""):
        return True
    if MARK in node.attr and set(marked(node)) != wanted:
        return True
    return wanted is not None and any(f"^{first}" not in node.input for first in wanted)


def _place(node: Any, device: str, firsts: Collection[str]) -> None:
    node.device = device
    if MARK in node.attr and (not firsts or set(marked(node)) != firsts):
        forget(node)
    there = set(node.input) if firsts else ()
    for first in sorted(firsts):
        if f"^{first}" not in there:
            add_marked(node, first)

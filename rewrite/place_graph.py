"""Runs the passes that write a placement into a graph, and proves what they did."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from graphs.flat_graph import Origin
from rewrite.annotate_devices import AnnotateDevices, places_of
from rewrite.call_graph import CallGraph
from rewrite.check_graph import check_devices, check_rewrite
from rewrite.clear_devices import ClearDevices
from rewrite.order.add_order import AddOrder, ClearOrder
from rewrite.order.order_edges import OrderEdge
from rewrite.pass_base import Pass, PassResult, run_passes
from rewrite.place_ops import PlaceOps
from rewrite.specialize_functions import SpecializeFunctions


@dataclasses.dataclass(frozen=True)
class KnownOrigins:
    """The part of a placement that a graph has the ops of, and the rest.

    Attributes:
      device_of_origin: {origin: device} for ops of the graph; an op that no calls of this graph
        lead to, though its function is there, is named without `calls`.
      unknown: what the graph doesn't have.
    """

    device_of_origin: Mapping[Origin, str]
    unknown: tuple[Origin, ...]


def known_origins(graph_def: Any, device_of_origin: Mapping[Origin, str]) -> KnownOrigins:
    """Splits a placement into what a graph has and what it has not.

    A function that nothing in the main graph calls (an object's method, called only by name)
    still gets devices. Where such calls disagree on an op, the first wins and the others count
    as unknown.
    """
    calls = CallGraph(graph_def)
    known: dict[Origin, str] = {}
    unknown = []
    for origin, device in device_of_origin.items():
        if places_of(calls, origin):
            named = origin
        else:
            named = Origin(origin.function, origin.node)
            if not origin.function or not places_of(calls, named):
                unknown.append(origin)
                continue
        if known.setdefault(named, device) != device:
            unknown.append(origin)
    return KnownOrigins(known, tuple(unknown))


def place_graph(
    graph_def: Any,
    device_of_origin: Mapping[Origin, str],
    order: Collection[OrderEdge] = (),
    is_proven_later: bool = False,
) -> PassResult:
    """Makes a GraphDef with exactly these devices and order; the input is left as it is.

    Args:
      graph_def: the graph.
      device_of_origin: {op: device}; no other op has one afterwards.
      order: control edges between ops of one device; no others of an order are left.
      is_proven_later: whether `prove_structure` compares what is written to disk with the given
        model; then only the devices, which it takes out, are read back here.

    Raises:
      PlacementError: an op is not in the graph.
      ModelError: a placed function is recursive.
      RewriteError: the result is not what was asked for (a defect).
    """
    placed = run_passes(graph_def, passes_of(graph_def, device_of_origin, order))
    if is_proven_later:
        check_devices(placed.graph_def, device_of_origin)
    else:
        check_rewrite(graph_def, placed.graph_def, device_of_origin, order)
    return placed


def passes_of(
    graph_def: Any, wanted: Mapping[Origin, str], order: Collection[OrderEdge] = ()
) -> list[Pass]:
    """What writes a placement into a graph: one pass where there are no functions."""
    if not graph_def.library.function:
        return [PlaceOps(wanted, order)]
    # Wanted ops are not cleared, only overwritten: so placing twice changes nothing.
    return [
        ClearOrder(order),
        SpecializeFunctions(wanted),
        ClearDevices(wanted),
        AnnotateDevices(wanted),
        AddOrder(order),
    ]

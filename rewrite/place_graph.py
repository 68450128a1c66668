"""Runs the passes that write a placement into a graph, and proves what they did."""

import copy
import dataclasses
from collections.abc import Collection, Mapping

from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from graphs.function_library import bodies
from graphs.protos import GraphDef, NodeDef
from rewrite.call_graph import CallGraph, Place, device_of_place, places_of
from rewrite.compare_graphs import same_graphs
from rewrite.order import order_edges
from rewrite.pass_base import PassResult, RewriteError, op_path, run_passes
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


def known_origins(graph_def: GraphDef, device_of_origin: Mapping[Origin, str]) -> KnownOrigins:
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
    graph_def: GraphDef,
    device_of_origin: Mapping[Origin, str],
    order: Collection[order_edges.OrderEdge] = (),
    is_proven_later: bool = False,
) -> PassResult:
    """Makes a GraphDef with exactly these devices and order; the input is left as it is.

    Args:
      device_of_origin: {op: device}; no other op has one afterwards.
      order: control edges between ops of one device; no others of an order are left.
      is_proven_later: whether `prove_structure` compares what is written to disk with the given
        model; then only the devices, which it takes out, are read back here.

    Raises:
      PlacementError: an op is not in the graph.
      ModelError: a placed function is recursive.
      RewriteError: the result is not what was asked for (a defect).
    """
    copying = [SpecializeFunctions(device_of_origin)] if graph_def.library.function else []
    placed = run_passes(graph_def, [*copying, PlaceOps(device_of_origin, order)])
    if not is_proven_later:
        check_rewrite(graph_def, placed.graph_def, device_of_origin, order)
    return placed


@dataclasses.dataclass(frozen=True)
class PlaceOps:
    """Exactly these devices and this order; what has them already stays as it is.

    A step of 64 shards has 180,000 ops: a copy takes 200 MB, so that all is written in one.

    Attributes:
      device_of_origin: {op: device}; all other ops get none. Two chains of calls that end in one
        FunctionDef must agree: SpecializeFunctions makes it so.
      order: control edges between ops of one body and one device. An op that waits for the other
        one by a control edge of its own gets no second one.
    """

    device_of_origin: Mapping[Origin, str]
    order: Collection[order_edges.OrderEdge] = ()

    def requires(self, graph_def: GraphDef) -> None:
        """Any GraphDef will do: what it has no place for is found, once, where it is placed."""

    def __call__(self, graph_def: GraphDef) -> PassResult:
        """Places them.

        Raises:
          PlacementError: an op is not there, an edge has no body with both of its ops, or two
            devices are wanted for one NodeDef.
        """
        calls = CallGraph(graph_def)
        device_of = device_of_place(calls, self.device_of_origin)
        firsts: dict[Place, set[str]] = {}
        for (first, then), places in order_edges.placed_edges(calls, self.order).items():
            if not places:
                raise PlacementError(
                    f"ordering {then.node!r} after {first.node!r}: the graph has no body with "
                    "both; an order must be for this very graph, make it again with "
                    "`tfplace optimize`"
                )
            for function, waiting, before in places:
                firsts.setdefault((function, waiting), set()).add(before)
        changed = [
            (function, number)
            for function, nodes in bodies(graph_def)
            for number, node in enumerate(nodes)
            if _is_other(node, device_of.get((function, node.name), ""),
                         firsts.get((function, node.name)))
        ]  # fmt: skip
        if not changed:
            return PassResult(graph_def, modified=False)
        placed = copy.deepcopy(graph_def)
        target, paths = dict(bodies(placed)), []
        for function, number in changed:
            node = target[function][number]
            place = function, node.name
            _place(node, device_of.get(place, ""), firsts.get(place, set()))
            paths.append(op_path(*place))
        return PassResult(placed, modified=True, changed_ops=tuple(paths))

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        check_devices(result.graph_def, self.device_of_origin)


def _is_other(node: NodeDef, device: str, firsts: Collection[str] | None) -> bool:
    """Whether anything is to be changed of a node."""
    return (
        node.device != device
        or (order_edges.MARK in node.attr and set(order_edges.marked(node)) != firsts)
        or (firsts is not None and any(f"^{first}" not in node.input for first in firsts))
    )


def _place(node: NodeDef, device: str, firsts: Collection[str]) -> None:
    node.device = device
    if order_edges.MARK in node.attr and (not firsts or set(order_edges.marked(node)) != firsts):
        order_edges.forget(node)
    there = set(node.input) if firsts else ()
    for first in sorted(firsts):
        if f"^{first}" not in there:
            order_edges.add_marked(node, first)


def check_rewrite(
    given: GraphDef,
    placed: GraphDef,
    device_of_origin: Mapping[Origin, str],
    order: Collection[order_edges.OrderEdge] = (),
) -> None:
    """Compares a GraphDef with what the passes made of it.

    Args:
      device_of_origin: the devices asked for; every other op must have none.
      order: the order edges asked for; there must be no others.

    Raises:
      RewriteError: an op, edge, attribute, function or gradient differs, an op is not where it
        was wanted, or one has a device that nobody asked for.
      PlacementError: device_of_origin names an op that the graph doesn't have.
    """
    order_edges.check_order(placed, order)
    same_graphs(given, placed)
    check_devices(placed, device_of_origin)


def check_devices(placed: GraphDef, device_of_origin: Mapping[Origin, str]) -> None:
    """Reads back where ops are; raises as `check_rewrite` where that is not as it was wanted."""
    wanted = device_of_place(CallGraph(placed), device_of_origin)
    for function, nodes in bodies(placed):
        for node in nodes:
            device = wanted.get((function, node.name), "")
            if node.device != device:
                raise RewriteError(
                    f"reading back: {op_path(function, node.name)!r} has device {node.device!r}, "
                    + (f"wanted {device!r}" if device else "which nobody asked for")
                )

"""Runs the passes that write a placement into a graph, and proves what they did."""

import copy
import dataclasses
from collections.abc import Collection, Mapping

from graphs.flat_graph import Origin
from graphs.protos import GraphDef, NodeDef
from rewrite.annotate_devices import (
    AnnotateDevices,
    ClearDevices,
    bodies,
    device_of_place,
    places_of,
    read_devices,
)
from rewrite.call_graph import CallGraph, copy_of
from rewrite.compare_graphs import same_graphs
from rewrite.order.order_edges import (
    MARK,
    AddOrder,
    ClearOrder,
    OrderEdge,
    add_marked,
    check_order,
    forget,
    marked,
)
from rewrite.pass_base import Pass, PassResult, RewriteError, op_path, run_passes
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
    graph_def: GraphDef, wanted: Mapping[Origin, str], order: Collection[OrderEdge] = ()
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


# One pass for graphs that call no function: devices and order are written in one copy.
#
# A step of 64 shards has 180,000 ops in its main graph. To clear, annotate and order them one after
# the other takes three copies of 200 MB and twenty walks through all nodes; there are no bodies to
# specialise, so that one walk does all of it.


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

    def requires(self, graph_def: GraphDef) -> None:
        """Raises PlacementError for an unknown op, or an edge that the graph has no place for."""
        if graph_def.library.function:
            raise RewriteError("placing ops: a graph with functions needs the other passes")
        AddOrder(self.order).requires(graph_def)

    def __call__(self, graph_def: GraphDef) -> PassResult:
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

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        wanted = {origin.node: device for origin, device in self.device_of_origin.items()}
        for node in result.graph_def.node:
            if node.device != wanted.get(node.name, ""):
                raise RewriteError(f"placing ops: {node.name!r} has {node.device!r} afterwards")


def _is_other(node: NodeDef, device_of: Mapping[str, str], firsts: Mapping[str, set[str]]) -> bool:
    """Whether anything is to be changed of a node."""
    wanted = firsts.get(node.name)
    if node.device != device_of.get(node.name, ""):
        return True
    if MARK in node.attr and set(marked(node)) != wanted:
        return True
    return wanted is not None and any(f"^{first}" not in node.input for first in wanted)


def _place(node: NodeDef, device: str, firsts: Collection[str]) -> None:
    node.device = device
    if MARK in node.attr and (not firsts or set(marked(node)) != firsts):
        forget(node)
    there = set(node.input) if firsts else ()
    for first in sorted(firsts):
        if f"^{first}" not in there:
            add_marked(node, first)


def check_rewrite(
    given: GraphDef,
    placed: GraphDef,
    device_of_origin: Mapping[Origin, str],
    order: Collection[OrderEdge] = (),
) -> None:
    """Compares a GraphDef with what the passes made of it.

    Args:
      given: the GraphDef before.
      placed: the GraphDef after.
      device_of_origin: the devices asked for; every other op must have none.
      order: the order edges asked for; there must be no others.

    Raises:
      RewriteError: an op, edge, attribute, function or gradient differs, an op is not where it
        was wanted, or one has a device that nobody asked for.
      PlacementError: device_of_origin names an op that the graph doesn't have.
    """
    check_order(placed, order)
    same_graphs(given, placed)
    check_devices(placed, device_of_origin)


def check_devices(placed: GraphDef, device_of_origin: Mapping[Origin, str]) -> None:
    """Reads back where ops are; raises as `check_rewrite` where that is not as it was wanted."""
    for origin, device in read_devices(placed, device_of_origin).items():
        if device != device_of_origin[origin]:
            raise RewriteError(
                f"reading back op {origin.node!r} of {origin.function or 'the main graph'!r}: "
                f"found {device!r}, wanted {device_of_origin[origin]!r}"
            )
    asked = {(origin.function, origin.node) for origin in device_of_origin}
    original = {f.signature.name: copy_of(f) for f in placed.library.function}
    for function, nodes in bodies(placed):
        names = {function, original.get(function, "")}
        for node in nodes:
            if node.device and not any((name, node.name) in asked for name in names):
                raise RewriteError(
                    f"reading back: {op_path(function, node.name)!r} has device {node.device!r}, "
                    "which nobody asked for"
                )

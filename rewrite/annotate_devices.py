"""Where ops stand in the main graph and the function library, and which devices they have there.

An op is named by its Origin. With `calls`, the body that this chain of calls ends in is meant;
without, every copy of the function, apart from ops that a chain has named.
"""

import copy
from collections.abc import Iterable, Mapping

from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from graphs.function_library import bodies
from graphs.protos import GraphDef
from rewrite.call_graph import CallGraph
from rewrite.pass_base import op_path

Place = tuple[str, str]
"""(function, node) as they stand in the GraphDef; function is "" for the main graph."""


def places_of(calls: CallGraph, origin: Origin) -> list[Place]:
    """Finds where an op stands: in one body, in every copy of its function, or nowhere."""
    if not origin.function:
        return [("", origin.node)] if origin.node in calls.nodes("") else []
    if origin.calls:
        functions: Iterable[str] = calls.resolve(origin.calls)
    else:
        functions = calls.copies(origin.function)
    return [(f, origin.node) for f in functions if origin.node in calls.nodes(f)]


def device_of_place(calls: CallGraph, device_of_origin: Mapping[Origin, str]) -> dict[Place, str]:
    """{(function, node): device}; an op that a chain of calls names goes before one without.

    Raises:
      PlacementError: an op is not in the graph, or one NodeDef is wanted on two devices.
    """
    devices: dict[Place, str] = {}
    for origin, device in device_of_origin.items():
        if origin.function and not origin.calls:
            continue
        for place in known_places(calls, origin):
            if devices.setdefault(place, device) != device:
                raise PlacementError(
                    f"annotating {_words(origin)}: {op_path(*place)!r} is wanted on both "
                    f"{devices[place]!r} and {device!r}, but it is one op for all calls of its "
                    "function; specialise the function first"
                )
    for origin, device in device_of_origin.items():
        if origin.function and not origin.calls:
            for place in known_places(calls, origin):
                devices.setdefault(place, device)
    return devices


def known_places(calls: CallGraph, origin: Origin) -> list[Place]:
    """Does what `places_of` does; raises PlacementError for an op that stands nowhere."""
    places = places_of(calls, origin)
    if not places:
        raise PlacementError(
            f"annotating {_words(origin)}: the graph has no such op; a placement must be for "
            "this very graph, make it again with `tfplace optimize`"
        )
    return places


def _words(origin: Origin) -> str:
    where = f" of function {origin.function!r}" if origin.function else ""
    through = f", called through {' > '.join(origin.calls)}" if origin.calls else ""
    return f"op {origin.node!r}{where}{through}"


def without_devices(graph_def: GraphDef) -> GraphDef:
    """The graph itself where nothing in it has a device, else a copy in which nothing has."""
    if not any(node.device for _, nodes in bodies(graph_def) for node in nodes):
        return graph_def
    cleared = copy.deepcopy(graph_def)
    for _, nodes in bodies(cleared):
        for node in nodes:
            if node.device:
                node.device = ""
    return cleared

"""Writes device strings into the main graph and the function library, and reads them back.

An op is named by its Origin. With `calls`, the body that this chain of calls ends in is meant;
without, every copy of the function, apart from ops that a chain has named.
"""

import copy
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from graphs.protos import GraphDef, NodeDef
from rewrite.call_graph import CallGraph
from rewrite.pass_base import PassResult, RewriteError, op_path

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


def read_devices(graph_def: GraphDef, origins: Iterable[Origin]) -> dict[Origin, str]:
    """{origin: device string} as the graph has it.

    Raises:
      PlacementError: the graph has no such op, or copies of it on different devices.
    """
    calls = CallGraph(graph_def)
    device_of_origin = {}
    for origin in origins:
        devices = {calls.nodes(f)[node].device for f, node in places_of(calls, origin)}
        if len(devices) != 1:
            raise PlacementError(
                f"reading the device of {_words(origin)}: found "
                f"{', '.join(sorted(map(repr, devices))) or 'no such op'}, wanted one device; "
                "name an op of this graph by the calls that lead to it"
            )
        device_of_origin[origin] = devices.pop()
    return device_of_origin


@dataclasses.dataclass(frozen=True)
class AnnotateDevices:
    """Sets NodeDef.device of the given ops; other ops keep what they have.

    Attributes:
      device_of_origin: {origin: device string}. Two chains that end in one FunctionDef must
        agree: SpecializeFunctions makes it so.
    """

    device_of_origin: Mapping[Origin, str]

    def requires(self, graph_def: GraphDef) -> None:
        """Raises PlacementError for an unknown op or two devices for one NodeDef."""
        device_of_place(CallGraph(graph_def), self.device_of_origin)

    def __call__(self, graph_def: GraphDef) -> PassResult:
        calls = CallGraph(graph_def)
        wanted = device_of_place(calls, self.device_of_origin)
        changed = {p: d for p, d in wanted.items() if calls.nodes(p[0])[p[1]].device != d}
        if not changed:
            return PassResult(graph_def, modified=False)
        annotated = copy.deepcopy(graph_def)
        target = CallGraph(annotated)
        for (function, node), device in changed.items():
            target.nodes(function)[node].device = device
        paths = tuple(op_path(*place) for place in changed)
        return PassResult(annotated, modified=True, changed_ops=paths)

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        calls = CallGraph(result.graph_def)
        for origin, device in self.device_of_origin.items():
            for function, node in places_of(calls, origin):
                now = calls.nodes(function)[node].device
                if now != device and (origin.calls or not origin.function):
                    raise RewriteError(
                        f"annotating {_words(origin)}: found {now!r} afterwards, wrote {device!r}"
                    )


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


def bodies(graph_def: GraphDef) -> Iterator[tuple[str, Sequence[NodeDef]]]:
    """(function name, its NodeDefs) of the main graph, named "", and of each function."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


@dataclasses.dataclass(frozen=True)
class ClearDevices:
    """Clears NodeDef.device everywhere but at some ops.

    Attributes:
      keep: these ops, as AnnotateDevices names them.
    """

    keep: Collection[Origin] = ()

    def requires(self, graph_def: GraphDef) -> None:
        """Any GraphDef will do."""

    def __call__(self, graph_def: GraphDef) -> PassResult:
        changed = [op_path(function, node.name) for function, node in self._to_clear(graph_def)]
        if not changed:
            return PassResult(graph_def, modified=False)
        cleared = copy.deepcopy(graph_def)
        for _, node in self._to_clear(cleared):
            node.device = ""
        return PassResult(cleared, modified=True, changed_ops=tuple(changed))

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        for function, node in self._to_clear(result.graph_def):
            raise RewriteError(f"clearing devices: {op_path(function, node.name)!r} kept its own")

    def _to_clear(self, graph_def: GraphDef) -> Iterator[tuple[str, NodeDef]]:
        placed = [(f, node) for f, nodes in bodies(graph_def) for node in nodes if node.device]
        calls = CallGraph(graph_def)
        keep = self.keep if placed else ()
        kept = {place for origin in keep for place in places_of(calls, origin)}
        for function, node in placed:
            if (function, node.name) not in kept:
                yield function, node

"""Finds out which function calls which, and which FunctionDef a chain of calls ends in.

A specialised copy of a function says in its signature's description what it is a copy of
(tf.saved_model.load refuses attributes of FunctionDefs that it doesn't know). So a chain of
calls that was named before specialising still leads to the right body afterwards: each step is
looked up by the called name first, then by the name of the function that the called one is a
copy of.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence

from graphs.building.conditionals import opened_branches
from graphs.errors import PlacementError
from graphs.flat_graph import Origin
from graphs.function_library import bodies, called_function, kept_whole, library_of
from graphs.protos import FunctionDef, GraphDef, Library, NodeDef, Nodes
from rewrite.pass_base import op_path

_MARK = "tfplace: copy of "


def copy_of(function: FunctionDef) -> str:
    """The name of the function that this FunctionDef is a copy of, or its own."""
    description: str = function.signature.description
    if description.startswith(_MARK):
        return description.removeprefix(_MARK)
    return str(function.signature.name)


def mark_as_copy(function: FunctionDef, original: str) -> None:
    """Notes in a FunctionDef what it is a copy of."""
    function.signature.description = _MARK + original


def opened_callees(node: NodeDef, library: Library) -> tuple[str, ...]:
    """The functions whose bodies take the place of this op: of a call, a conditional's branches.

    Empty for ops that stay one unit. A conditional may stay one for reasons that don't show here;
    then no chain of calls leads through it.
    """
    callee = called_function(node, library)
    if callee is None:
        return tuple(branch.function for branch in opened_branches(node, library))
    return () if kept_whole(node, library[callee]) else (callee,)


class CallGraph:
    """The bodies of a GraphDef by the functions' names; the main graph is called ""."""

    def __init__(self, graph_def: GraphDef):
        self.library = library_of(graph_def)
        self._main = graph_def.node
        self._callees: dict[str, dict[str, list[str]]] = {}
        self._resolved: dict[tuple[str, ...], tuple[str, ...]] = {(): ("",)}
        self._names: dict[str, dict[str, NodeDef]] = {}

    def body(self, function: str) -> Sequence[NodeDef]:
        """The NodeDefs of a function, or of the main graph for ""."""
        return self.library[function].node_def if function else self._main

    def nodes(self, function: str) -> Nodes:
        """{name: NodeDef} of a body."""
        if function not in self._names:
            self._names[function] = {node.name: node for node in self.body(function)}
        return self._names[function]

    def copies(self, name: str) -> list[str]:
        """The function of that name and all its copies, in the order of the file."""
        return [
            actual
            for actual, function in self.library.items()
            if actual == name or copy_of(function) == name
        ]

    def resolve(self, chain: tuple[str, ...]) -> tuple[str, ...]:
        """The functions that a chain of calls from the main graph ends in.

        Returns:
          ("",) for the empty chain; () where the graph has no such calls; else one name, or
          several where calls in one body go to different copies.
        """
        if chain not in self._resolved:
            callees: dict[str, None] = {}
            for caller in self.resolve(chain[:-1]):
                callees.update(dict.fromkeys(self.opened_callees(caller, chain[-1])))
            self._resolved[chain] = tuple(callees)
        return self._resolved[chain]

    def opened_callees(self, caller: str, step: str) -> Sequence[str]:
        """What the body of `caller` calls when a chain goes on with `step`."""
        if caller not in self._callees:
            exact: dict[str, list[str]] = {}
            by_original: dict[str, list[str]] = {}
            for node in self.body(caller):
                for callee in opened_callees(node, self.library):
                    if callee not in exact:
                        exact[callee] = [callee]
                        by_original.setdefault(copy_of(self.library[callee]), []).append(callee)
            self._callees[caller] = {**by_original, **exact}
        return self._callees[caller].get(step, ())


# Where ops stand in the main graph and the function library, and which devices they have there.
#
# An op is named by its Origin. With `calls`, the body that this chain of calls ends in is meant;
# without, every copy of the function, apart from ops that a chain has named.

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


def names_other_tasks(graph_def: GraphDef) -> bool:
    """Whether a device string means another task than this process."""
    return any(
        "/job:" in node.device and "/job:localhost" not in node.device
        for _, nodes in bodies(graph_def)
        for node in nodes
    )


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

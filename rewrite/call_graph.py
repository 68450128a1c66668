"""Finds out which function calls which, and which FunctionDef a chain of calls ends in.

A specialised copy of a function says in its signature's description what it is a copy of
(tf.saved_model.load refuses attributes of FunctionDefs that it doesn't know). So a chain of
calls that was named before specialising still leads to the right body afterwards: each step is
looked up by the called name first, then by the name of the function that the called one is a
copy of.
"""

from collections.abc import Mapping, Sequence

from graphs.building.conditionals import opened_branches
from graphs.function_library import called_function, kept_whole, library_of
from graphs.protos import FunctionDef, GraphDef, Library, NodeDef, Nodes

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
        return self._callees_of(caller).get(step, ())

    def _callees_of(self, function: str) -> Mapping[str, list[str]]:
        if function not in self._callees:
            exact: dict[str, list[str]] = {}
            by_original: dict[str, list[str]] = {}
            for node in self.body(function):
                for callee in opened_callees(node, self.library):
                    if callee not in exact:
                        exact[callee] = [callee]
                        original = copy_of(self.library[callee])
                        by_original.setdefault(original, []).append(callee)
            self._callees[function] = {**by_original, **exact}
        return self._callees[function]

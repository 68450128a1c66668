"""Opens the functions inside units: loops, conditionals and calls that are placed as a whole.

All bodies of a flat graph become one flat graph of their own, so that what prices or inspects
single ops works on these as well. The arguments are placeholders of the shapes that the unit is
given. A variable's handle is the variable's op itself, so that its shape is known inside, too.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from graphs.building.flatten import flatten
from graphs.building.pieces import add_call, add_functions, argument_of_call, functions_of
from graphs.building.shapes import TensorProperties
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs


@dataclasses.dataclass(frozen=True)
class UnitFunction:
    """A function that a unit runs.

    Attributes:
      unit: index of the unit's node in the flat graph.
      function: name.
      inputs: the unit's inputs that are its arguments.
      share: how often it runs in one run of the unit or, of a loop, in one iteration. Each of n
        branches of a conditional counts as 1 / n.
    """

    unit: int
    function: str
    inputs: tuple[str, ...]
    share: float


@dataclasses.dataclass(frozen=True)
class UnitBodies:
    """The functions of all units of a flat graph, opened.

    Attributes:
      functions: the functions.
      flat: their bodies as one graph.
      function_of_node: index into `functions` for each node of `flat`, -1 for an argument.
    """

    functions: Sequence[UnitFunction]
    flat: FlatGraph
    function_of_node: Sequence[int]


def unit_bodies(flat: FlatGraph, properties: TensorProperties) -> UnitBodies | None:
    """Opens the functions of all units; None where there are none or they can't be opened."""
    functions = list(unit_functions(flat))
    if not functions:
        return None
    graph_def = type(flat.graph_def)(versions=flat.graph_def.versions)  # calls each function once
    add_functions(graph_def, [each.function for each in functions], flat.library)
    fetches = []
    for index, each in enumerate(functions):
        given = [properties.known_of(tensor) for tensor in each.inputs]
        name = _call_name(index)
        fetches += add_call(graph_def, name, flat.library[each.function], given) or [name]
    try:
        # Conditionals inside stay whole; node_work prices their branches, one of so many each.
        inner = flatten(graph_def, [], fetches, open_conditionals=False)
    except ModelError:  # the body is damaged; TensorFlow says so when the unit is run
        return None
    number = {_call_name(i): i for i in range(len(functions))}
    owner = [number.get(node.name.partition("/")[0], -1) for node in inner.graph_def.node]
    return UnitBodies(functions, inner, owner)


def unit_functions(flat: FlatGraph) -> Iterator[UnitFunction]:
    """The functions of all units that run one, in the order of the flat graph."""
    for index, node in enumerate(flat.graph_def.node):
        if node.name not in flat.unit_of_node:
            continue
        inputs = tuple(data_inputs(node))
        for name, first, share in functions_of(node, flat.library):
            yield UnitFunction(index, name, inputs[first:], share)


def argument_name(function: int, position: int) -> str:
    """The op of the opened bodies that stands for an argument of one of their functions."""
    return argument_of_call(_call_name(function), position)


def _call_name(number: int) -> str:
    return f"body_{number}"

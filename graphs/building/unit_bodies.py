"""Opens the functions inside units: loops, conditionals and calls that are placed as a whole.

All bodies of a flat graph become one flat graph of their own, so that what prices or inspects
single ops works on these as well. The arguments are placeholders of the shapes that the unit is
given. A variable's handle is the variable's op itself, so that its shape is known inside, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.conditionals import branches_of
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import KEPT_WHOLE, called_function, library_of
from graphs.names import data_inputs, op_of, source_of
from graphs.source_model import TensorSpec
from graphs.tensor_protos import placeholder


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
    """Opens the functions of all units; None where there are none or they can't be opened.

    Args:
      flat: the graph.
      properties: dtypes and shapes of its tensors.
    """
    functions = list(unit_functions(flat))
    if not functions:
        return None
    graph_def, feeds, fetches = _graph_of_calls(functions, flat, properties)
    try:
        # Conditionals inside stay whole; node_work prices their branches, one of so many each.
        inner = flatten(graph_def, feeds, fetches, open_conditionals=False)
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
        for name, first, share in _functions_of(node, flat.library):
            if name in flat.library:
                yield UnitFunction(index, name, inputs[first:], share)


def _functions_of(node: Any, library: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """(function, its first argument among the node's inputs, share)."""
    if node.op in op_types.LOOPS:
        return [(node.attr[key].func.name, 0, 1.0) for key in ("body", "cond")]
    if node.op in op_types.CONDITIONALS:
        branches = branches_of(node)
        return [(branch.function, 1, 1.0 / len(branches)) for branch in branches]
    called = called_function(node, library)
    return [] if called is None else [(called, 0, 1.0)]


def argument_name(function: int, position: int) -> str:
    """The op of the opened bodies that stands for an argument of one of their functions."""
    return f"{_call_name(function)}_argument_{position}"


def _call_name(number: int) -> str:
    return f"body_{number}"


def _graph_of_calls(
    functions: Sequence[UnitFunction], flat: FlatGraph, properties: TensorProperties
) -> tuple[Any, list[TensorSpec], list[str]]:
    """A graph that calls each function once; its feeds and fetches."""
    graph_def = type(flat.graph_def)()
    graph_def.versions.CopyFrom(flat.graph_def.versions)
    called = {each.function for each in functions}
    for function in flat.graph_def.library.function:
        graph_def.library.function.add().CopyFrom(function)
        if function.signature.name in called:
            for key in KEPT_WHOLE:
                graph_def.library.function[-1].attr.pop(key, None)
    library = library_of(graph_def)
    feeds: list[TensorSpec] = []
    fetches = []
    for number, each in enumerate(functions):
        call = graph_def.node.add(name=_call_name(number), op="PartitionedCall")
        call.attr["f"].func.name = each.function
        for position, tensor in enumerate(each.inputs):
            name = argument_name(number, position)
            call.input.append(name)
            argument, spec = _argument(name, tensor, flat, properties)
            graph_def.node.append(argument)
            feeds += [spec] if spec else []
        outputs = library[each.function].signature.output_arg
        fetches += [f"{call.name}:{i}" for i in range(len(outputs))] or [call.name]
    return graph_def, feeds, fetches


def _argument(
    name: str, tensor: str, flat: FlatGraph, properties: TensorProperties
) -> tuple[Any, TensorSpec | None]:
    """The NodeDef that stands for an argument, and how it is fed.

    A variable's handle, or an argument of unknown rank, is not fed.
    """
    producer = flat.nodes[op_of(source_of(tensor, flat.nodes, op_types.HANDLE))]
    if producer.op == "VarHandleOp":
        handle = type(producer)()
        handle.CopyFrom(producer)
        handle.name = name
        del handle.input[:]
        return handle, None
    dtype, shape = properties.dtype(tensor), properties.shape(tensor)
    spec = None if shape is None else TensorSpec(f"{name}:0", dtype, shape)
    return placeholder(name, dtype, shape), spec

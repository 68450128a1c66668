"""What is inside units: the functions of loops, conditionals and calls that stay whole, opened.

All bodies of a flat graph make one flat graph of their own, so that whoever prices or inspects
single ops can do the same with these. Arguments are placeholders of the shapes that the unit is
given; a variable's handle is the variable's op itself, so that its shape is known inside, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphs.building.callees import KEPT_WHOLE, called_function
from graphs.building.conditionals import CONDITIONALS, branches_of
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input
from graphs.source_model import TensorSpec

LOOPS = frozenset({"While", "StatelessWhile"})
_HANDS_ON = frozenset({"Identity", "Enter", "RefEnter", "Switch", "RefSwitch"})


@dataclasses.dataclass(frozen=True)
class UnitFunction:
    """A function that a unit runs.

    Attributes:
      unit: index of the unit's node in the flat graph.
      function: name.
      inputs: the unit's inputs that are its arguments.
      share: how often it runs, for one run of the unit or, of a loop, one iteration: a branch of
        a conditional counts as one of the branches.
    """

    unit: int
    function: str
    inputs: tuple[str, ...]
    share: float


@dataclasses.dataclass(frozen=True)
class UnitBodies:
    """Attributes:
    functions: of all units.
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
        # Conditionals inside stay whole: here, too, their branches count as one of so many.
        inner = flatten(graph_def, feeds, fetches, open_conditionals=False)
    except ModelError:  # damaged; TensorFlow will say so when the unit is run
        return None
    number = {_call_name(i): i for i in range(len(functions))}
    owner = [number.get(node.name.partition("/")[0], -1) for node in inner.graph_def.node]
    return UnitBodies(functions, inner, owner)


def unit_functions(flat: FlatGraph) -> Iterator[UnitFunction]:
    """The functions of all units that run one, in the order of the flat graph."""
    library = {function.signature.name: function for function in flat.graph_def.library.function}
    for index, node in enumerate(flat.graph_def.node):
        if node.name not in flat.unit_of_node:
            continue
        inputs = tuple(name for name in node.input if not name.startswith("^"))
        for name, first, share in _functions_of(node, library):
            if name in library:
                yield UnitFunction(index, name, inputs[first:], share)


def _functions_of(node: Any, library: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """(function, its first argument among the node's inputs, share)."""
    if node.op in LOOPS:
        return [(node.attr[key].func.name, 0, 1.0) for key in ("body", "cond")]
    if node.op in CONDITIONALS:
        branches = branches_of(node)
        return [(branch.function, 1, 1.0 / len(branches)) for branch in branches]
    called = called_function(node, library)
    return [] if called is None else [(called, 0, 1.0)]


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
    nodes = {node.name: node for node in flat.graph_def.node}
    feeds: list[TensorSpec] = []
    fetches = []
    for number, each in enumerate(functions):
        call = graph_def.node.add(name=_call_name(number), op="PartitionedCall")
        call.attr["f"].func.name = each.function
        for position, tensor in enumerate(each.inputs):
            name = f"{call.name}_argument_{position}"
            call.input.append(name)
            _add_argument(graph_def, feeds, name, tensor, nodes, properties)
        signature = next(
            f.signature for f in graph_def.library.function if f.signature.name == each.function
        )
        fetches += [f"{call.name}:{i}" for i in range(len(signature.output_arg))] or [call.name]
    return graph_def, feeds, fetches


def _add_argument(
    graph_def: Any,
    feeds: list[TensorSpec],
    name: str,
    tensor: str,
    nodes: Mapping[str, Any],
    properties: TensorProperties,
) -> None:
    import tensorflow as tf

    source = parse_input(tensor)
    producer = nodes[source.op]
    while producer.op in _HANDS_ON:
        producer = nodes[parse_input(producer.input[0]).op]
    if producer.op == "VarHandleOp":
        handle = graph_def.node.add()
        handle.CopyFrom(producer)
        handle.name = name
        del handle.input[:]
        return
    dtype = properties.dtype_of[source.op][source.output]
    shape = properties.shape_of[source.op][source.output]
    node = graph_def.node.add(name=name, op="Placeholder")
    node.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
    if shape is None:
        node.attr["shape"].shape.unknown_rank = True
        return
    for size in shape:
        node.attr["shape"].shape.dim.add(size=size)
    feeds.append(TensorSpec(f"{name}:0", dtype, shape))

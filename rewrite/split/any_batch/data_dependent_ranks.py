"""Ops whose result may have fewer dimensions in another run: of a step that takes several sizes.

A Squeeze that names no axes drops every dimension of one element. Of a window of any length it
drops that too, as soon as one comes that is a single step long, and from there on nothing is what
it was when the step was decided. So nobody is told the shape of what it makes.
"""

import copy
import dataclasses
from collections.abc import Callable, Collection, Sequence

from graphs.building.op_outputs import attr_of
from graphs.flat_graph import FlatGraph
from graphs.function_library import reached_functions
from graphs.protos import NodeDef, Shape, is_open
from rewrite.split.any_batch.open_step import OpenStep

UNSURE_RANK = "how many dimensions it makes is not the same in every run"


def ops_of_unsure_rank(flat: FlatGraph, tried: Callable[[], Sequence[OpenStep]]) -> set[str]:
    """The Squeezes that may drop another dimension in another run, and units that hold a Squeeze.

    Args:
      tried: gives it at several sizes; is asked only where a Squeeze names no axes.
    """
    library = flat.library
    inside = {name for name, each in library.items() if any(map(_names_no_axes, each.node_def))}
    found, steps = set(), None
    for node in flat.graph_def.node:
        if _names_no_axes(node):
            steps = steps or tried()
            shapes = [(step.batch, step.properties.shape(node.input[0])) for step in steps]
            if _may_be_single(shapes):
                found.add(node.name)
        elif inside and node.name in flat.unit_of_node:
            found |= set() if inside.isdisjoint(reached_functions([node], library)) else {node.name}
    return found


def forgetting_ranks(flat: FlatGraph, unsure: Collection[str]) -> FlatGraph:
    """The step for whoever decides: a Squeeze of these is an op that makes any shape."""
    if not unsure:
        return flat
    graph_def = copy.deepcopy(flat.graph_def)
    for node in graph_def.node:
        if node.name in unsure and _names_no_axes(node):
            dtype = node.attr["T"].type
            node.op = "PlaceholderWithDefault"
            node.attr.clear()
            node.attr["dtype"].type = dtype
            node.attr["shape"].shape.unknown_rank = True
    return dataclasses.replace(flat, graph_def=graph_def)


def _names_no_axes(node: NodeDef) -> bool:
    return node.op == "Squeeze" and not attr_of(node, "squeeze_dims").list.i


def _may_be_single(tried: Sequence[tuple[int, Shape]]) -> bool:
    """Whether a dimension has several sizes and is no multiple of the batch, which is never one."""
    batch, first = tried[0]
    for other_batch, other in tried:
        if first is None or other is None or is_open(other) or len(first) != len(other):
            return True
        if any(
            size != later and (size % batch != 0 or size * other_batch != later * batch)
            for size, later in zip(first, other, strict=True)
        ):
            return True
    return False

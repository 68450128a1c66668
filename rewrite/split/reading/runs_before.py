"""What runs before what in a step, and steps with other nodes."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import GraphDef, NodeDef
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decision import GRADIENTS, NORMS
from rewrite.split.functions import functions_of, waits_of_all

_MAY_BE_CONSTANTS = SHAPE_OPS | {"Const"}
"""What a split step may have another op for, which waits for nothing, as what is computed of it."""


def bits(names: Iterable[str]) -> dict[str, int]:
    """{op: a bit of its own}."""
    return {name: 1 << number for number, name in enumerate(dict.fromkeys(names))}


def runs_before(
    graph_def: GraphDef, bit_of: Mapping[str, int], is_opened: bool = False, is_split: bool = False
) -> Mapping[str, int]:
    """{op: which of the ops with a bit surely come before it}.

    Args:
      is_opened: whether functions that ops run are opened in their place.
      is_split: whether the step will be split.

    An op whose inputs all come from a branch that isn't taken does not run. None of these edges
    passes such an op by: a Merge only surely waits for what comes before all of its inputs, and a
    ControlTrigger for nothing.
    """
    before: dict[str, int] = {}
    nodes, library = {node.name: node for node in graph_def.node}, library_of(graph_def)
    runs_functions = {n for n, node in nodes.items() if is_split and functions_of(node, library)}
    constants: set[str] = set()
    for node in graph_def.node:
        found: list[int] = []
        for name in waits_of_all(node) if is_opened else node.input:
            source = parse_input(name)
            if node.op in op_types.MERGES and nodes[source.op].op in op_types.NEXT_ITERATION:
                continue
            # What closes a loop comes later, and has no bits yet.
            each = before.get(source.op, 0) | bit_of.get(source.op, 0)
            if source.op in runs_functions and source.output >= 0:
                each = 0  # of the first copy or known, while a control edge is from all
            if is_split and nodes[source.op].op in NORMS | GRADIENTS and source.output > 0:
                each = 0  # taken apart, statistics and slopes wait for less than the one op did
            found.append(each)
        combine = operator.and_ if node.op in op_types.MERGES else operator.or_
        before[node.name] = functools.reduce(combine, found) if found else 0
        if is_split and _may_be_constant(node, constants):
            constants.add(node.name)
        if node.op == "ControlTrigger" or node.name in constants:
            before[node.name] = 0
    return before


def _may_be_constant(node: NodeDef, constants: Set[str]) -> bool:
    """Whether a split step may have a constant for an op, which waits for nothing."""
    sources = [op_of(name) for name in data_inputs(node)]
    return node.op in _MAY_BE_CONSTANTS or (bool(sources) and constants >= {*sources})


def with_nodes(flat: FlatGraph, nodes_for: Callable[[NodeDef], Sequence[NodeDef]]) -> FlatGraph:
    """The step with what `nodes_for` gives for each node, which comes from where that node does."""
    own = flat.graph_def
    rows = [
        (new, origin)
        for node, origin in zip(own.node, flat.origins, strict=True)
        for new in nodes_for(node)
    ]
    graph_def = type(own)(versions=own.versions, library=own.library, node=[new for new, _ in rows])
    return dataclasses.replace(flat, graph_def=graph_def, origins=[origin for _, origin in rows])

"""Whether a written step has the very nodes of the one that was proven: then nothing is opened.

That is how a graph has it, where ops keep the names that they have in the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.function_library import library_of
from graphs.graph_edges import edges_of
from graphs.names import data_inputs, op_of, parse_input
from graphs.reached import reached
from graphs.source_model import SourceModel
from rewrite.pass_base import RewriteError
from rewrite.split.build_step import SplitStep

PASSING = frozenset({"Identity", "IdentityN"})
ORDERING = frozenset({"NoOp"})
FREE = PASSING | ORDERING | {"Const"}
"""What may be there besides: it changes nothing."""
ALSO_RUN = FREE | set(op_types.PLACEHOLDERS)


def has_nodes_of(source: SourceModel, step: SplitStep, outputs: Mapping[str, str]) -> bool:
    """Whether a model runs the very nodes of a step, and nothing else; False says nothing yet.

    Of equal nodes one reads what the other reads: so what is only in the step has no reader.
    """
    wanted = _reached(step.graph_def, step.fetches)
    there = _reached(source.graph_def, source.fetches)
    functions = library_of(source.graph_def)
    fetched = {op_of(each) for each in source.fetches if ":" in each}
    return (
        None not in (*wanted.values(), *there.values())
        and all(_is_same(there[name], node) for name, node in wanted.items() if name in there)
        and all(node.op in FREE for name, node in wanted.items() if name not in there)
        and all(node.op in ALSO_RUN for name, node in there.items() if name not in wanted)
        and all(functions.get(name) == f for name, f in library_of(step.graph_def).items())
        and all(op_of(tensor) in fetched for tensor in outputs.values())
        and all(
            origin(wanted, f"{identity}:0") == origin(there, tensor)
            for identity, tensor in outputs.items()
        )
    )


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (list(one.input) == list(other.input) and is_same_op(one, other))


def _reached(graph_def: Any, fetches: Sequence[str]) -> dict[str, Any]:
    """{op that running the fetches runs: its node}; {"": None} besides where one is missing."""
    nodes = list(graph_def.node)
    number_of, edges = {node.name: number for number, node in enumerate(nodes)}, edges_of(nodes)
    producer, first = edges.producer.tolist(), edges.first.tolist()
    ops = reached(
        (number_of.get(op_of(fetch), -1) for fetch in fetches),
        lambda op: producer[first[op] : first[op + 1]] if op >= 0 else (),
    )
    there = {nodes[op].name: nodes[op] for op in ops if op >= 0}
    return there if len(there) == len(ops) else {**there, "": None}


def origin(nodes: Mapping[str, Any], tensor: str) -> str:
    """The tensor that ops hand on as this one."""
    source = parse_input(tensor)
    for _ in nodes:
        if nodes[source.op].op not in PASSING:
            return source.tensor
        source = parse_input(data_inputs(nodes[source.op])[source.output])
    raise RewriteError(f"reading the written step: {tensor!r} is handed on in a circle")


def is_same_op(node: Any, other: Any) -> bool:
    """Whether nodes do the same with what they read; of what is fed its name says all."""
    if node.op != other.op:
        return False
    if node.op in op_types.PLACEHOLDERS:
        return bool(node.name == other.name)
    return _attributes(node) == _attributes(other)


def _attributes(node: Any) -> dict[str, Any]:
    return {key: value for key, value in node.attr.items() if not key.startswith("_")}

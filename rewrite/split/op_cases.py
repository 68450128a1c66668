"""The distinct split ops of a step, each of which is proven once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.function_library import named_functions
from graphs.names import data_inputs, parse_input, source_of, tensor_of
from graphs.tensor_protos import shape_of
from rewrite.split.decide import Decisions
from rewrite.split.list_cases import (
    is_of_optional,
    list_input,
    lists_made,
    of_rows,
    optional_case,
    with_vectors,
)
from rewrite.split.op_case import CaseInput, OpCase, bare_op
from rewrite.split.op_view import Answer, Split, attributes_of_copies, type_of_copies
from rewrite.split.states import State, shard_sizes


def op_cases(flat: FlatGraph, decisions: Decisions, num_shards: int) -> list[OpCase]:
    """One case for each distinct split op: type, attributes, shapes, states and known inputs."""
    first: dict[tuple[Any, ...], OpCase] = {}
    count: Counter[tuple[Any, ...]] = Counter()
    for key, case in _keyed(flat, decisions, shard_sizes(decisions.batch, num_shards)):
        count[key] += 1
        first.setdefault(key, case)
    return [dataclasses.replace(case, count=count[key]) for key, case in first.items()]


def bodies_of(answer: Answer) -> Mapping[str, Any]:
    """{attribute: what becomes of the function that it names} of an op that runs functions."""
    return getattr(answer, "bodies", {})


def _keyed(
    flat: FlatGraph, decisions: Any, sizes: tuple[int, ...]
) -> Iterator[tuple[tuple[Any, ...], OpCase]]:
    """What tells cases apart, and the case; of ops in split functions, too."""
    for node in flat.graph_def.node:
        answer = decisions.answer_of_op.get(node.name)
        if not isinstance(answer, Split) or (node.op == "Const" and answer.is_repeated):
            continue  # a copy of a constant is the constant
        for body in bodies_of(answer).values():
            facts = body.facts
            inside = SimpleNamespace(
                answer_of_op=body.answers, values=facts, properties=facts.properties,
                elements=facts.elements,
            )  # fmt: skip
            yield from _keyed(body.body.flat, inside, sizes)
        if bodies_of(answer):
            continue
        if is_of_optional(answer):
            given, state, shape = optional_case(decisions, node, answer, sizes)
            bare = with_vectors(bare_op(node))
            key = (bare.SerializeToString(deterministic=True), given.key, state)
            case = OpCase(
                node.name, 1, bare, bare, (given,), (state,), {}, [shape], sizes, False, None
            )
            yield key, case
            continue
        inputs = tuple(_inputs(flat, decisions, node, answer, sizes))
        lists = lists_made(decisions, node, answer, sizes)
        bare = bare_op(node)
        copy = type(bare)(op=type_of_copies(node, answer))
        for name, value in attributes_of_copies(bare, answer).items():
            copy.attr[name].CopyFrom(value)
        written = [n.SerializeToString(deterministic=True) for n in (bare, copy)]
        key = (*written, *(i.key for i in inputs), answer.outputs, answer.is_mean, *lists.items())
        shapes = decisions.properties.shape_of[node.name]
        library = flat.graph_def.library if any(named_functions(bare)) else None
        case = OpCase(
            node.name, 1, bare, copy, inputs, tuple(map(of_rows, answer.outputs)), lists, shapes,
            sizes, answer.is_mean, library,
        )  # fmt: skip
        yield key, case


def _inputs(
    flat: FlatGraph,
    decisions: Any,
    node: Any,
    answer: Split,
    sizes: tuple[int, ...],
) -> Iterator[CaseInput]:
    names, properties = data_inputs(node), decisions.properties
    for position, (name, state) in enumerate(zip(names, answer.inputs, strict=True)):
        dtype = properties.dtype(name)
        if dtype == "resource":
            yield _handle(flat, name, state)
            continue
        if dtype == "variant":
            yield list_input(decisions, node, tensor_of(name), state, sizes)
            continue
        value = decisions.values.value(tensor_of(name))
        sizes_at = answer.shape_inputs.get(position, {}) if value is not None else {}
        if value is not None and "float" in dtype and not (value.size == 1 and value.all()):
            value = None  # random numbers prove more than zeros, and are alike for many ops
        shape, rows = properties.shape(name), answer.row_inputs.get(position)
        yield CaseInput(shape, dtype, state, value, sizes_at, rows=rows)


def _handle(flat: FlatGraph, name: str, state: State) -> CaseInput:
    """The variable behind a handle; no shape where there is none."""
    import tensorflow as tf

    producer = flat.nodes[parse_input(source_of(name, flat.nodes, op_types.HANDLE)).op]
    if producer.op != "VarHandleOp":
        return CaseInput(None, "resource", state)
    shape = shape_of(producer.attr["shape"].shape)
    dtype = tf.as_dtype(producer.attr["dtype"].type).name
    return CaseInput(shape, dtype, state, is_handle=True)

"""What was decided at one size of all that is open, held against what there is at another one."""

import dataclasses
from collections.abc import Collection, Iterator

from graphs.names import data_inputs, tensor_of
from graphs.protos import NodeDef, Shape
from rewrite.split.any_batch.open_step import OpenStep
from rewrite.split.decide.decide import Decisions
from rewrite.split.decide.per_example_rows import is_counted
from rewrite.split.decision import (
    DecidedFunction,
    DecidedGraph,
    Split,
    answer_seen_twice,
    is_same_answer,
)
from rewrite.split.states import Sharded, State, is_same, seen_twice

DIFFERS = "what becomes of it is not the same for every batch size"
ROWS_BY_NUMBER = "its row numbers depend on where in the batch a shard begins, of any batch size"
OTHER_DIMENSION = "another dimension than the batch is open, too"


def decisions_seen_twice(first: Decisions, second: Decisions) -> Decisions:
    """The first decisions; where entries have more elements each in the second, that is any number.

    A sequence's steps lie one behind another in [entries * steps, d].
    """
    answers, states = second.answer_of_op, second.state_of_tensor
    return dataclasses.replace(
        first,
        answer_of_op={
            op: answer_seen_twice(answer, answers[op]) for op, answer in first.answer_of_op.items()
        },
        state_of_tensor={
            tensor: seen_twice(state, states[tensor])
            for tensor, state in first.state_of_tensor.items()
        },
    )


def cut_at_one_size(first: Decisions, second: Decisions) -> set[str]:
    """Whole ops that make as many rows as the batch has, at one of two sizes only."""
    return {
        node.name
        for node in first.facts.flat.graph_def.node
        if not any(isinstance(d.answer_of_op[node.name], Split) for d in (first, second))
        and any(
            not is_same(state, second.state_of_tensor[tensor])
            for tensor, state in _made(node, first)
        )
    }


def cut_though_open_elsewhere(first: Decisions, at: Decisions) -> set[str]:
    """Whole ops whose outputs no part could be taken of; see OTHER_DIMENSION."""
    return {
        node.name
        for node in first.facts.flat.graph_def.node
        if not isinstance(first.answer_of_op[node.name], Split)
        and any(_is_open_elsewhere(*each, first, at) for each in _made(node, first))
    }


def of_another_size(first: Decisions, at: Decisions | OpenStep) -> set[str]:
    """The first ops whose outputs are to be cut, though they have not the batch's size there."""
    found, wrong = set[str](), set[str]()
    for node in first.facts.flat.graph_def.node:
        tensors = {tensor_of(name) for name in data_inputs(node)}
        for tensor, state in _made(node, first):
            if not _has_parts(at.properties.shape(tensor), state, at.batch):
                found |= set() if wrong & tensors else {node.name}
                wrong.add(tensor)
    return found


def _has_parts(shape: Shape, state: State, batch: int) -> bool:
    """Whether a tensor has the parts that a state says; where only the run knows, if it may."""
    if not isinstance(state, Sharded) or shape is None or len(shape) <= state.axis:
        return True
    size = shape[state.axis]
    if state.is_any:
        return size >= 0 and size % batch == 0
    return size == state.size(batch) or (size == -1 and state.size(1) == 1)


def differences(first: Decisions, second: Decisions, kept_whole: Collection[str]) -> dict[str, str]:
    """{op: why it can't be split} of those that are not split alike at two sizes of the batch.

    Args:
      kept_whole: ops of which that is known already.
    """
    found = {}
    for node in first.facts.flat.graph_def.node:
        one, two = (each.answer_of_op[node.name] for each in (first, second))
        if node.name in kept_whole or not (isinstance(one, Split) or isinstance(two, Split)):
            continue
        if not isinstance(one, Split) or not isinstance(two, Split) or not is_same_answer(one, two):
            found[node.name] = DIFFERS
            continue
        data = data_inputs(node)
        rows = [tensor_of(data[position]) for position in one.row_inputs]
        if not all(is_counted(first.facts.flat.nodes, each, first.values.value) for each in rows):
            found[node.name] = ROWS_BY_NUMBER
        elif any(is_told_another_size(node, each, each.batch) for each in (first, second)):
            found[node.name] = DIFFERS
        elif any(_is_open_elsewhere(*each, first, second) for each in _read_and_made(node, one)):
            found[node.name] = OTHER_DIMENSION
    return found


def is_told_another_size(node: NodeDef, decided: DecidedGraph, batch: int) -> bool:
    """Whether an op that is split is told a size that only is enough for this batch."""
    answer, data = decided.answer_of_op[node.name], data_inputs(node)
    for position, entries in answer.shape_inputs.items() if isinstance(answer, Split) else ():
        numbers = decided.facts.value(tensor_of(data[position]))
        for entry, state in entries.items():
            if numbers is None or numbers.reshape(-1)[entry] not in (-1, state.size(batch)):
                return True
    return False


def differences_at_length(first: Decisions, at: Decisions) -> dict[str, str]:
    """The same of those that would not be as they are with another size of what else is open."""
    found = {}
    for node in first.facts.flat.graph_def.node:
        one, other = (each.answer_of_op[node.name] for each in (first, at))
        if not isinstance(one, Split):
            continue
        states = [*_read_and_made(node, one)]
        hangs_on_it = any(
            isinstance(state, Sharded) and state.is_any for _, state in states
        ) or any(map(_has_factors, one.bodies.values()))
        if any(_is_open_elsewhere(*each, first, at) for each in states):
            found[node.name] = OTHER_DIMENSION
        elif (hangs_on_it and not is_same_answer(one, other)) or not all(
            _has_parts(at.properties.shape(tensor), state, first.batch) for tensor, state in states
        ):
            found[node.name] = DIFFERS
    return found


def split_among(names: Collection[str], decisions: Decisions) -> dict[str, str]:
    """{op: why it must not be} of those that are split."""
    answers = decisions.answer_of_op
    return {name: DIFFERS for name in names if isinstance(answers[name], Split)}


def _made(node: NodeDef, decisions: Decisions) -> Iterator[tuple[str, State]]:
    """The tensors that an op makes, and how they are in the split step."""
    for index in range(len(decisions.properties.dtype_of[node.name])):
        yield f"{node.name}:{index}", decisions.state_of_tensor[f"{node.name}:{index}"]


def _read_and_made(node: NodeDef, answer: Split) -> Iterator[tuple[str, State]]:
    """The tensors that an op reads and makes, and how its copies do."""
    yield from zip(map(tensor_of, data_inputs(node)), answer.inputs, strict=True)
    yield from ((f"{node.name}:{i}", state) for i, state in enumerate(answer.outputs))


def _has_factors(body: DecidedFunction) -> bool:
    """Whether the batch is a factor of a dimension in a function, or in one that it runs."""
    inner = [each for answer in body.answer_of_op.values() if isinstance(answer, Split)
             for each in answer.bodies.values()]  # fmt: skip
    return any(map(_has_factors, inner)) or any(
        isinstance(state, Sharded) and state.size(1) != 1 for state in body.state_of_tensor.values()
    )


def _is_open_elsewhere(tensor: str, state: State, first: Decisions, at: Decisions) -> bool:
    """Whether a tensor whose parts are taken apart by their shape has no such fixed shape."""
    if not isinstance(state, Sharded) or state.outer == 1:
        return False
    shapes = [each.properties.shape(tensor) or () for each in (first, at)]
    return [s for a, s in enumerate(shapes[0]) if a != state.axis] != [
        s for a, s in enumerate(shapes[1]) if a != state.axis
    ]

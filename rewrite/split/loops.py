"""Splits loops, conditionals and calls with the functions that they run.

Each shard gets its own loop, whose body works on its part alone; the loops of several devices run
beside each other, and each counts its own iterations. That is only right if no iteration needs
anything of another shard: neither may the body join or sum parts, nor may the number of iterations
or the branch that is taken depend on what is cut. Otherwise the op stays whole, and says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from graphs import op_types
from graphs.names import data_inputs, parse_input, with_index
from rewrite.split.bodies import Argument, Bodies, Body, functions_of, handed_on
from rewrite.split.facts import Element, Facts, joined, joined_shape
from rewrite.split.list_elements import ListElements
from rewrite.split.local import why_not_local
from rewrite.split.op_view import Answer, OpView, Split, StayWhole
from rewrite.split.states import SUM, WHOLE, Listed, Partial, State

MAX_ROUNDS = 10
"""States only change upwards; a loop that is not settled after so many rounds stays whole."""


@dataclasses.dataclass(frozen=True, eq=False)
class SplitBody:
    """What becomes of a function that a split op runs.

    Attributes:
      body: the function.
      answers: {op: what becomes of it}.
      states: {"op:i": state}.
      facts: what is known of its tensors.
      results: the state in which each output is handed on.
    """

    body: Body
    answers: Mapping[str, Answer]
    states: Mapping[str, State]
    facts: Facts
    results: Sequence[State]

    def __eq__(self, other: object) -> bool:
        """Whether the same becomes of the same ops, be it at another batch size."""
        return (
            isinstance(other, SplitBody)
            and self.body.function == other.body.function
            and self.answers == other.answers
            and tuple(self.results) == tuple(other.results)
        )

    __hash__ = None  # type: ignore[assignment]


class Analysis(Protocol):
    """Decides for the ops of a graph; decide.py has the only one."""

    bodies: Bodies
    elements: ListElements
    batch: int

    def ops(
        self, facts: Facts, given: Mapping[str, State], scope: str
    ) -> tuple[dict[str, Answer], dict[str, State]]:
        """What becomes of each op, and the state of each tensor.

        Args:
          facts: of the graph.
          given: {tensor that the graph is given: its state}.
          scope: what the names of the graph's lists begin with, unlike those of other graphs.
        """


@dataclasses.dataclass(frozen=True)
class _Given:
    """What a function is given: for each argument its state, and what is known of it."""

    states: Sequence[State]
    arguments: Sequence[Argument]
    elements: Sequence[Element | None]


def function_answer(analysis: Analysis, facts: Facts, scope: str, view: OpView) -> Answer:
    """What becomes of an op that runs functions."""
    node = view.node
    functions = functions_of(node, facts.flat.library)
    if not functions:
        return StayWhole(f"it is part of {facts.flat.unit_reason.get(node.name, 'a unit')}")
    inputs = [with_index(parse_input(name).tensor) for name in data_inputs(node)]
    first = 1 if node.op in op_types.CONDITIONALS else 0
    if first and view.inputs[0].state != WHOLE:
        return StayWhole("the branch that it takes depends on the data that is cut")
    given = _given(facts, inputs[first:], view.states[first:])
    scope = f"{scope}{node.name}/"
    if node.op in op_types.LOOPS:
        constant = handed_on(facts.flat.library[functions["body"]])
        arguments = [
            argument if position in constant else dataclasses.replace(argument, value=None)
            for position, argument in enumerate(given.arguments)
        ]
        given = dataclasses.replace(given, arguments=arguments)
        return _loop(analysis, facts, scope, node, functions, given)
    return _branches(analysis, facts, scope, node, functions, given, first)


def _given(facts: Facts, tensors: Sequence[str], states: Sequence[State]) -> _Given:
    arguments = [
        Argument(facts.dtype(t), facts.shape(t), facts.value(t), facts.handle(t)) for t in tensors
    ]
    # What is a sum of terms is summed before: a body rarely could do with the terms.
    summed = [WHOLE if isinstance(state, Partial) else state for state in states]
    return _Given(summed, arguments, [facts.elements.get(t) for t in tensors])


def _run(
    analysis: Analysis, scope: str, function: str, given: _Given
) -> SplitBody | None:
    """What becomes of a function that is given this; its results as they are."""
    body = analysis.bodies.opened(function, given.arguments)
    if body is None:
        return None
    facts = Facts(body.flat, body.properties, body.values)
    for name, element in zip(body.arguments, given.elements, strict=True):
        if element is not None:
            facts.elements[name] = element
    states = dict(zip(body.arguments, given.states, strict=True))
    answers, states_of = analysis.ops(facts, states, scope)
    results = [states_of[tensor] for tensor in body.outputs]
    return SplitBody(body, answers, states_of, facts, results)


def _loop(
    analysis: Analysis,
    facts: Facts,
    scope: str,
    node: Any,
    functions: Mapping[str, str],
    given: _Given,
) -> Answer:
    """A loop: its states are those that one more iteration would not change."""
    for _ in range(MAX_ROUNDS):
        body = _run(analysis, scope, functions["body"], given)
        if body is None:
            return StayWhole("the body of the loop can't be opened")
        after = _after_iteration(analysis, body, given)
        if isinstance(after, str):
            return StayWhole(after)
        if _same(given, after):
            break
        given = after
    else:
        return StayWhole("what its iterations hand on does not settle")
    body = dataclasses.replace(body, results=tuple(given.states))
    condition = _run(analysis, scope, functions["cond"], given)
    if condition is None or condition.results[0] != WHOLE:
        return StayWhole("how often the loop runs depends on the data that is cut")
    library = facts.flat.library
    why = why_not_local(condition, library) or why_not_local(body, library)
    if why:
        return StayWhole(why)
    _learn(facts, node, given, body)
    states = tuple(given.states)
    return Split(states, states, bodies={"body": body, "cond": condition})


def _after_iteration(analysis: Analysis, body: SplitBody, given: _Given) -> _Given | str:
    """What the next iteration is given at most; or why that can't be."""
    states, arguments, elements = [], [], []
    for position, tensor in enumerate(body.body.outputs):
        before, after = given.states[position], body.results[position]
        state = _joined_state(analysis.elements, before, after)
        if state is None:
            return "its iterations hand on a value that is cut in another way each time"
        old = given.arguments[position]
        is_same = body.body.source(tensor) == body.body.arguments[position]
        argument = old
        if not is_same:
            shape = joined_shape(old.shape, body.facts.shape(tensor))
            argument = Argument(old.dtype, shape)
        states.append(state)
        arguments.append(argument)
        element = given.elements[position]
        if element is not None and not is_same:
            element = joined(element, body.facts.elements.get(tensor, Element()))
        elements.append(element)
    return _Given(states, arguments, elements)


def _joined_state(elements: ListElements, before: State, after: State) -> State | None:
    """A state for a value that was in one before an iteration and is in another after it."""
    if isinstance(before, Listed) and isinstance(after, Listed):
        return elements.join(before, after)
    if isinstance(before, Listed) or isinstance(after, Listed):
        return None
    if before == WHOLE:
        is_combined = isinstance(after, Partial) and after.combine != "sum"
        return None if is_combined else after
    return before if after in (before, WHOLE) else None


def _same(given: _Given, after: _Given) -> bool:
    return (
        list(given.states) == list(after.states)
        and [a.key() for a in given.arguments] == [a.key() for a in after.arguments]
        and list(given.elements) == list(after.elements)
        and all(
            one.roots == other.roots
            for one, other in zip(given.states, after.states, strict=True)
            if isinstance(one, Listed) and isinstance(other, Listed)
        )
    )


def _learn(facts: Facts, node: Any, given: _Given, body: SplitBody) -> None:
    """Notes what is known of a loop's outputs."""
    inputs = [with_index(parse_input(name).tensor) for name in data_inputs(node)]
    for position, tensor in enumerate(body.body.outputs):
        output = f"{node.name}:{position}"
        argument, element = given.arguments[position], given.elements[position]
        facts.learn_shape(output, argument.shape)
        if element is not None:
            facts.elements[output] = element
        if body.body.source(tensor) == body.body.arguments[position]:
            facts.learn_same(output, inputs[position])
            if argument.value is not None:
                facts.learn_value(output, argument.value)


def _branches(
    analysis: Analysis,
    facts: Facts,
    scope: str,
    node: Any,
    functions: Mapping[str, str],
    given: _Given,
    first: int,
) -> Answer:
    """A conditional or a call: what its functions return has to be cut alike."""
    bodies: dict[str, SplitBody] = {}
    results: list[State] = []
    for key, function in functions.items():
        body = _run(analysis, f"{scope}{key}/", function, given)
        if body is None:
            return StayWhole("a function that it runs can't be opened")
        bodies[key] = body
        for position, state in enumerate(body.results):
            if position == len(results):
                results.append(state)
                continue
            before = results[position]
            common = _joined_state(analysis.elements, before, state) or _joined_state(
                analysis.elements, state, before
            )
            if common is None:
                return StayWhole("its branches return a value that is cut in different ways")
            results[position] = common
    if all(state == WHOLE for state in results):
        return StayWhole("nothing that it returns is cut")
    for key, body in bodies.items():
        bodies[key] = dataclasses.replace(body, results=tuple(results))
        why = why_not_local(bodies[key], facts.flat.library)
        if why:
            return StayWhole(why)
    for position in range(len(results)):
        _learn_result(facts, f"{node.name}:{position}", list(bodies.values()), position)
    inputs = (*(WHOLE,) * first, *given.states)
    return Split(inputs, tuple(results), bodies=bodies)


def _learn_result(
    facts: Facts, output: str, bodies: Sequence[SplitBody], position: int
) -> None:
    """Notes what is known of an output of a conditional or a call."""
    tensors = [(each.facts, each.body.outputs[position]) for each in bodies]
    inner, tensor = tensors[0]
    shape = inner.shape(tensor)
    for other, name in tensors[1:]:
        shape = joined_shape(shape, other.shape(name))
    facts.learn_shape(output, shape)
    if all(tensor in inner.elements for inner, tensor in tensors):
        element = inner.elements[tensor]
        for other, name in tensors[1:]:
            element = joined(element, other.elements[name])
        facts.elements[output] = element
    value = inner.value(tensor)
    if len(tensors) == 1 and value is not None:
        facts.learn_value(output, value)


def added_to_a_sum(view: OpView) -> Answer | None:
    """In a body: a whole tensor that is added to terms of a sum is one more term.

    So what a loop accumulates is summed once, behind the loop.
    """
    is_sum = view.node.op in ("Add", "AddV2", "AddN", "Sub") and SUM in view.states
    alike = len({each.shape for each in view.inputs}) == 1
    if not is_sum or not alike or any(state not in (WHOLE, SUM) for state in view.states):
        return None
    return Split((SUM,) * len(view.inputs), (SUM,) * len(view.output_shapes))

"""Splits conditionals and calls with the functions that they run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from rewrite.split.facts import Facts, joined_shape
from rewrite.split.list_facts import joined
from rewrite.split.local import why_not_local
from rewrite.split.op_view import Answer, Split, StayWhole
from rewrite.split.split_body import Analysis, Given, SplitBody, joined_state, run_function
from rewrite.split.states import WHOLE, State


def branches_answer(
    analysis: Analysis,
    facts: Facts,
    scope: str,
    node: Any,
    functions: Mapping[str, str],
    given: Given,
    first: int,
) -> Answer:
    """A conditional or a call: what its functions return has to be cut alike."""
    bodies: dict[str, SplitBody] = {}
    results: list[State] = []
    for key, function in functions.items():
        body = run_function(analysis, f"{scope}{key}/", function, given)
        if body is None:
            return StayWhole("a function that it runs can't be opened")
        bodies[key] = body
        for position, state in enumerate(body.results):
            if position == len(results):
                results.append(state)
                continue
            before = results[position]
            common = joined_state(analysis.elements, before, state) or joined_state(
                analysis.elements, state, before
            )
            if common is None:
                return StayWhole("its branches return a value that is cut in different ways")
            results[position] = common
    for position in range(len(results)):  # whatever becomes of it
        _learn_shape(facts, f"{node.name}:{position}", list(bodies.values()), position)
    if all(state == WHOLE for state in results):
        return StayWhole("nothing that it returns is cut", bodies)
    for key, body in bodies.items():
        bodies[key] = dataclasses.replace(body, results=tuple(results))
    for body in bodies.values():
        why = why_not_local(body, facts.flat.library, analysis.batch)
        if why:
            return StayWhole(why, bodies)
    for position in range(len(results)):
        _learn_result(facts, f"{node.name}:{position}", list(bodies.values()), position)
    inputs = (*(WHOLE,) * first, *given.states)
    return Split(inputs, tuple(results), bodies=bodies)


def _learn_shape(facts: Facts, output: str, bodies: Sequence[SplitBody], position: int) -> None:
    """Notes the shape of an output of a conditional or a call."""
    shapes = [each.facts.shape(each.body.outputs[position]) for each in bodies]
    facts.learn_shape(output, functools.reduce(joined_shape, shapes))


def _learn_result(facts: Facts, output: str, bodies: Sequence[SplitBody], position: int) -> None:
    """Notes what else is known of an output of a conditional or a call that is split."""
    tensors = [(each.facts, each.body.outputs[position]) for each in bodies]
    inner, tensor = tensors[0]
    if all(tensor in inner.elements for inner, tensor in tensors):
        element = inner.elements[tensor]
        for other, name in tensors[1:]:
            element = joined(element, other.elements[name])
        facts.elements[output] = element
    value = inner.value(tensor)
    if len(tensors) == 1 and value is not None:
        facts.learn_value(output, value)

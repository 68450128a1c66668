"""Splits loops, conditionals and calls with the functions that they run.

Each shard gets its own loop, whose body works on its part alone; the loops of several devices run
beside each other, and each counts its own iterations. That is only right if no iteration needs
anything of another shard: neither may the body join or sum parts, nor may the number of iterations
or the branch that is taken depend on what is cut. Otherwise the op stays whole, and says why.
"""

import dataclasses
from collections.abc import Mapping

from graphs import op_types
from graphs.building.known_tensors import Known, joined_shapes, without_value
from graphs.function_library import handed_on
from graphs.names import data_inputs, tensor_of
from graphs.protos import NodeDef
from rewrite.split.decide.analysis import Analysis
from rewrite.split.decide.branches import branches_answer
from rewrite.split.decide.given import Argument, Given, given_to, joined_state
from rewrite.split.decide.shard_local import why_not_local
from rewrite.split.decision import Answer, DecidedFunction, Split, StayWhole
from rewrite.split.functions import functions_of
from rewrite.split.list_facts import Element, joined
from rewrite.split.rules.op_view import OpView
from rewrite.split.rules.special import TENSORFLOW_1
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Optioned

MAX_ROUNDS = 10
"""States only change upwards; a loop that is not settled after so many rounds stays whole."""


def function_answer(analysis: Analysis, facts: Facts, scope: str, view: OpView) -> Answer:
    """What becomes of an op that runs functions."""
    node = view.node
    functions = functions_of(node, facts.flat.library)
    if not functions:
        why = facts.flat.unit_reason.get(node.name)
        return StayWhole(f"it is part of {why}" if why else TENSORFLOW_1)
    inputs = [tensor_of(name) for name in data_inputs(node)]
    first = 1 if node.op in op_types.CONDITIONALS else 0
    if first and view.inputs[0].state != WHOLE:
        return StayWhole("the branch that it takes depends on the data that is cut")
    given = given_to(facts, inputs[first:], view.states[first:])
    scope = f"{scope}{node.name}/"
    if node.op in op_types.LOOPS:
        constant = handed_on(facts.flat.library[functions["body"]])
        given = [
            each if position in constant
            else dataclasses.replace(each, known=without_value(each.known))
            for position, each in enumerate(given)
        ]  # fmt: skip
        return _loop(analysis, facts, scope, node, functions, given)
    return branches_answer(analysis, facts, scope, node, functions, given, first)


def _loop(
    analysis: Analysis,
    facts: Facts,
    scope: str,
    node: NodeDef,
    functions: Mapping[str, str],
    given: Given,
) -> Answer:
    """A loop: its states are those that one more iteration would not change."""
    for _ in range(MAX_ROUNDS):
        body = analysis.function(scope, functions["body"], given)
        if body is None:
            return StayWhole("the body of the loop can't be opened")
        after = _after_iteration(analysis, body, given)
        if isinstance(after, str):
            return StayWhole(after)
        if [(each, each.roots) for each in given] == [(each, each.roots) for each in after]:
            break
        given = after
    else:
        return StayWhole("what its iterations hand on does not settle")
    for position, argument in enumerate(given):  # whatever becomes of the loop
        facts.learn_shape(f"{node.name}:{position}", argument.known.shape)
    states = tuple(each.state for each in given)
    body = dataclasses.replace(body, results=states)
    condition = analysis.function(scope, functions["cond"], given)
    library = facts.flat.library
    if (
        condition is None
        or condition.results[0] != WHOLE
        or why_not_local(condition, library, analysis.batch)
    ):
        return StayWhole("how often the loop runs depends on the data that is cut", {"body": body})
    why = why_not_local(body, library, analysis.batch)
    if why:
        return StayWhole(why, {"body": body})
    _learn(facts, node, given, body)
    return Split(states, states, bodies={"body": body, "cond": condition})


def _after_iteration(analysis: Analysis, body: DecidedFunction, given: Given) -> Given | str:
    """What the next iteration is given at most; or why that can't be."""
    next_given = []
    for before, name, tensor, after in zip(
        given, body.body.arguments, body.body.outputs, body.results, strict=True
    ):
        state = joined_state(analysis.elements, before.state, after)
        if state is None:
            return "its iterations hand on a value that is cut in another way each time"
        if isinstance(state, Optioned):
            return "its iterations hand on an Optional"
        known, element = before.known, before.element
        if body.body.source(tensor) != name:
            known = Known(known.dtype, joined_shapes(known.shape, body.facts.shape(tensor)))
            if element is not None:
                element = joined(element, body.facts.elements.get(tensor, Element()))
        next_given.append(Argument(state, known, element))
    return next_given


def _learn(facts: Facts, node: NodeDef, given: Given, body: DecidedFunction) -> None:
    """Notes what else is known of the outputs of a loop that is split."""
    inputs = [tensor_of(name) for name in data_inputs(node)]
    for position, tensor in enumerate(body.body.outputs):
        output = f"{node.name}:{position}"
        argument = given[position]
        if argument.element is not None:
            facts.elements[output] = argument.element
        if body.body.source(tensor) == body.body.arguments[position]:
            facts.learn_same(output, inputs[position])
            value = facts.value(inputs[position]) if argument.known.exact else None
            if value is not None:
                facts.learn_value(output, value)

"""Splits conditionals and calls with the functions that they run."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from graphs.building.known_tensors import joined_shapes
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import NodeDef
from rewrite.split.decide.analysis import Analysis
from rewrite.split.decide.given import Given, joined_state
from rewrite.split.decide.shard_local import why_not_local
from rewrite.split.decision import Answer, DecidedFunction, Split, StayWhole
from rewrite.split.functions import functions_of
from rewrite.split.list_facts import joined
from rewrite.split.shape_facts import Facts, Returned
from rewrite.split.states import WHOLE, Optioned, State


def branches_answer(
    analysis: Analysis,
    facts: Facts,
    scope: str,
    node: NodeDef,
    functions: Mapping[str, str],
    given: Given,
    first: int,
) -> Answer:
    """A conditional or a call: what its functions return has to be cut alike."""
    bodies: dict[str, DecidedFunction] = {}
    results: list[State] = []
    for key, function in functions.items():
        own = _as_taken(facts, node, key, given, first)
        body = analysis.function(f"{scope}{key}/", function, own)
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
    if first:
        facts.returned[node.name] = {
            key: Returned(body.facts, body.body.outputs, body.results)
            for key, body in bodies.items()
        }
    for position in range(len(results)):  # whatever becomes of it
        shapes = [each.facts.shape(each.body.outputs[position]) for each in bodies.values()]
        facts.learn_shape(f"{node.name}:{position}", functools.reduce(joined_shapes, shapes))
    if all(state == WHOLE for state in results):
        return StayWhole("nothing that it returns is cut", bodies)
    for key, body in bodies.items():
        bodies[key] = dataclasses.replace(body, results=tuple(results), outer=facts)
    for body in bodies.values():
        why = why_not_local(body, facts.flat.library, analysis.batch)
        if why:
            return StayWhole(why, bodies)
    for position in range(len(results)):
        _learn_result(facts, f"{node.name}:{position}", list(bodies.values()), position)
    inputs = (*(WHOLE,) * first, *(each.state for each in given))
    return Split(inputs, tuple(results), bodies=bodies)


def _as_taken(facts: Facts, node: NodeDef, key: str, given: Given, first: int) -> Given:
    """What a branch is given: where other conditionals took the same one, what that returned."""
    taken = []
    for argument, name in zip(given, data_inputs(node)[first:], strict=True):
        tensor, state = tensor_of(name), argument.state
        found = taken_with(facts, node, key, tensor) if first else None
        source, output, inner = found or (facts, tensor, state)
        if isinstance(state, Optioned):
            state = inner
        taken.append(dataclasses.replace(argument, state=state, source=(source, output)))
    return taken


def taken_with(
    facts: Facts, node: NodeDef, key: str, tensor: str
) -> tuple[Facts, str, State] | None:
    """What a branch gets for a tensor of a conditional that takes the same branch.

    Returns:
      What is known in the other conditional's branch, which of its tensors this is, and its state;
      None where the tensor comes from elsewhere, or the other one may take another branch.
    """
    source, output = facts.origin(tensor)
    other = source.flat.nodes[op_of(output)]
    branches = source.returned.get(other.name, {})
    if branches.keys() != functions_of(node, facts.flat.library).keys():
        return None
    chosen = [tensor_of(data_inputs(each)[0]) for each in (other, node)]
    if source.origin(chosen[0]) != facts.origin(chosen[1]):
        return None
    inner, tensors, states = branches[key]
    index = int(output.partition(":")[2])
    return inner, tensors[index], states[index]


def _learn_result(
    facts: Facts, output: str, bodies: Sequence[DecidedFunction], position: int
) -> None:
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

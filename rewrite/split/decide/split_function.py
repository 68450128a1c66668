"""What becomes of a function that a split op runs, and what it is given."""

import dataclasses
from collections.abc import Sequence

from graphs.building.known_tensors import Known
from rewrite.split.decide.analysis import Analysis
from rewrite.split.decision import DecidedFunction
from rewrite.split.list_facts import Element
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Listed, Optioned, Partial, State


@dataclasses.dataclass(frozen=True)
class Given:
    """What a function is given: for each argument its state, and what is known of it.

    `sources` says where each argument comes from; a loop's change in each iteration.
    """

    states: Sequence[State]
    arguments: Sequence[Known]
    elements: Sequence[Element | None]
    sources: Sequence[tuple[Facts, str]] = ()


def given_to(facts: Facts, tensors: Sequence[str], states: Sequence[State]) -> Given:
    arguments = [facts.argument(tensor) for tensor in tensors]
    # What is a sum of terms is summed before: a body rarely could do with the terms.
    summed = [WHOLE if isinstance(state, Partial) else state for state in states]
    return Given(summed, arguments, [facts.elements.get(t) for t in tensors])


def run_function(
    analysis: Analysis, scope: str, function: str, given: Given
) -> DecidedFunction | None:
    """What becomes of a function that is given this; its results as they are."""
    if given.sources or any(isinstance(state, Optioned) for state in given.states):
        return _decided(analysis, scope, function, given)  # what is outside counts, too
    key = (
        analysis.batch,
        scope,
        function,
        tuple((state, getattr(state, "roots", None)) for state in given.states),
        tuple(given.arguments),
        tuple(given.elements),
        analysis.elements.known_in(scope),
    )
    known, lists = analysis.bodies.decided, analysis.elements
    if key not in known:
        analysis.elements = lists.for_body()
        try:
            known[key] = _decided(analysis, scope, function, given), analysis.elements
        finally:
            analysis.elements = lists
    body, found = known[key]
    lists.take(found)
    return body


def _decided(analysis: Analysis, scope: str, function: str, given: Given) -> DecidedFunction | None:
    body = analysis.bodies.opened(function, given.arguments)
    if body is None:
        return None
    facts = Facts(body.flat, body.properties, body.values)
    for name, element in zip(body.arguments, given.elements, strict=True):
        if element is not None:
            facts.elements[name] = element
    facts.given.update(zip(body.arguments, given.sources, strict=False))
    states = dict(zip(body.arguments, given.states, strict=True))
    answers, states_of = analysis.ops(facts, states, scope)
    results = [states_of[tensor] for tensor in body.outputs]
    return DecidedFunction(facts, answers, states_of, body, results)


def joined_state(elements: ListElements, before: State, after: State) -> State | None:
    """A state for a value that was in one before an iteration and is in another after it.

    Of two Optionals, one may be whole: each shard has its own one then, of the whole value.
    """
    if isinstance(before, Listed) and isinstance(after, Listed):
        return elements.join(before, after)
    if isinstance(before, Listed) or isinstance(after, Listed):
        return None
    if isinstance(before, Optioned) or isinstance(after, Optioned):
        roots = [each.roots for each in (before, after) if isinstance(each, Optioned)]
        held = before.held if isinstance(before, Optioned) and before == after else None
        return Optioned(held, frozenset().union(*roots))
    if before == WHOLE:
        is_combined = isinstance(after, Partial) and after.combine != "sum"
        return None if is_combined else after
    return before if after in (before, WHOLE) else None

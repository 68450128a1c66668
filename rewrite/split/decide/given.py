"""What a function is given that a split op runs, and in which states values meet there."""

import dataclasses
from collections.abc import Sequence

from graphs.building.known_tensors import Known
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

"""What a function is given that a split op runs, and in which states values meet there."""

import dataclasses
from collections.abc import Sequence

from graphs.building.known_tensors import Known
from rewrite.split.list_facts import Element
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Listed, Optioned, Partial, State


@dataclasses.dataclass(frozen=True)
class Argument:
    """What a function is given for one of its arguments.

    Attributes:
      state: how it is cut.
      known: what is known of it.
      element: of what it holds, where it is a TensorList.
      source: where it comes from; None of a loop's, which change in each iteration.
    """

    state: State
    known: Known
    element: Element | None
    source: tuple[Facts, str] | None = None

    @property
    def roots(self) -> frozenset[str] | None:
        """The lists or Optionals that it may be; None of any other tensor."""
        return self.state.roots if isinstance(self.state, Listed | Optioned) else None


Given = Sequence[Argument]


def given_to(facts: Facts, tensors: Sequence[str], states: Sequence[State]) -> Given:
    """What a function is given: these tensors, in these states.

    What is a sum of terms is summed before: a body rarely could do with the terms.
    """
    summed = [WHOLE if isinstance(state, Partial) else state for state in states]
    return [
        Argument(state, facts.argument(tensor), facts.elements.get(tensor))
        for tensor, state in zip(tensors, summed, strict=True)
    ]


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
        return None if isinstance(after, Partial) and after.combine != "sum" else after
    return before if after in (before, WHOLE) else None

"""How the elements of TensorLists and Optionals are cut, which all users of a list agree on."""

from collections.abc import Iterable

from rewrite.split.states import WHOLE, Listed, Optioned, Sharded, State, Whole

# How the elements of TensorLists are cut, learned from what is put into them.
#
# A list is made empty, and only what is written into it later, perhaps in a loop, says how its
# elements are cut. So a step is decided several times: each time with what the time before has
# shown of each list's root, the op that makes it, until nothing new is found. An Optional holds
# from the start what it ever holds; all that is learned of it is whether something needs it whole.


class ListElements:
    """What is known of the elements of all lists of a step."""

    def __init__(self) -> None:
        self._known: dict[str, Sharded | Whole] = {}
        self._seen: set[str] = set()
        self._found: dict[str, Sharded] = {}
        self._failed: set[str] = set()

    def for_body(self) -> "ListElements":
        """What is known in this pass, to note apart what deciding a function finds."""
        inside = ListElements()
        inside._known = self._known
        return inside

    def known_in(self, scope: str) -> frozenset[tuple[str, Sharded | Whole]]:
        """What is known of the lists whose names begin so."""
        return frozenset(each for each in self._known.items() if each[0].startswith(scope))

    def take(self, found: "ListElements") -> None:
        """Notes what was found in a function."""
        self._seen |= found._seen
        self._failed |= found._failed
        for name, element in found._found.items():
            if self._found.setdefault(name, element) != element:
                self._failed.add(name)

    def root(self, name: str, *put_in: State) -> State:
        """The state of a new list; `put_in` are the states of what it holds from the start."""
        self._seen.add(name)
        known = self._known.get(name)
        if isinstance(known, Whole):
            return WHOLE
        listed: State = Listed(known, frozenset([name]))
        for state in put_in:
            assert isinstance(listed, Listed)
            listed = self.write(listed, state)
        return listed

    def optional(self, name: str, held: State) -> State:
        """The state of an Optional that holds something."""
        if self._known.get(name) == WHOLE:
            return WHOLE
        inner = held.roots if isinstance(held, Listed | Optioned) else frozenset()
        return Optioned(held, inner | {name})

    def write(self, listed: Listed, element: State) -> Listed:
        """The state of a list after an element was put in; a whole one can be cut."""
        if element == WHOLE or element is None:
            return listed
        if not isinstance(element, Sharded) or listed.element not in (None, element):
            self.fail(listed)
            return listed
        for name in listed.roots:
            if self._found.setdefault(name, element) != element:
                self._failed.add(name)
        return Listed(element, listed.roots)

    def join(self, one: Listed, other: Listed) -> Listed:
        """The state of a list that is one or the other, or the sum of both."""
        both = Listed(one.element, one.roots | other.roots)
        element = other.element or one.element
        return both if element is None else self.write(both, element)

    def fail(self, listed: Listed | Optioned) -> None:
        """Something needs the list, or the Optional, whole."""
        self._failed.update(listed.roots)

    def fail_all(self, states: Iterable[State]) -> None:
        """Something needs all lists and Optionals among these whole."""
        for state in states:
            if isinstance(state, Listed | Optioned):
                self.fail(state)

    def learn(self) -> bool:
        """Ends a pass over the step; whether another one is needed, since more is known now."""
        news: dict[str, Sharded | Whole] = {
            name: element for name, element in self._found.items() if name not in self._known
        }
        if not news:
            wrong = {n for n, e in self._found.items() if self._known[n] != e} | self._failed
            news = {n: WHOLE for n in wrong if self._known.get(n) != WHOLE}
        if not news:
            news = {name: WHOLE for name in self._seen if name not in self._known}
        self._known.update(news)
        self._seen, self._found, self._failed = set(), {}, set()
        return bool(news)

"""What the elements of TensorLists have in common, which TensorFlow does not infer."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rewrite.split.op_view import Shape, attr_of, is_open
from rewrite.split.states import WHOLE, Listed, Optioned, Sharded, State, Whole

if TYPE_CHECKING:
    from rewrite.split.facts import Facts

_ELEMENT_READERS = {
    "TensorListGetItem": (0, 0),
    "TensorListPopBack": (1, 0),
    "TensorListStack": (0, 1),
    "TensorListGather": (0, 1),
}  # {op: (output, dimensions that it has before those of an element)}
_PASS_ON = frozenset({"Identity", "ZerosLike", "TensorListResize", "Snapshot", "StopGradient"})


@dataclasses.dataclass(frozen=True)
class Element:
    """What all elements of a list have in common.

    Attributes:
      shape: of each of them, before anything is cut; None where they differ or it is not known.
      value: as (dtype, shape, bytes), where all are the same known array.
      length: how many there are.
      is_empty: whether none was put in yet.
    """

    shape: Shape = None
    value: tuple[str, tuple[int, ...], bytes] | None = None
    length: int | None = None
    is_empty: bool = False

    def array(self) -> np.ndarray | None:
        """The value."""
        if self.value is None:
            return None
        dtype, shape, content = self.value
        return np.frombuffer(content, dtype).reshape(shape)


def complete_list(facts: "Facts", node: Any, inputs: Sequence[str]) -> None:
    output = f"{node.name}:0"
    first = facts.elements.get(inputs[0], Element()) if inputs else Element()
    if node.op in ("TensorListReserve", "EmptyTensorList"):
        is_reserved = node.op == "TensorListReserve"
        count = facts.value(inputs[1]) if is_reserved else None
        facts.elements[output] = Element(length=_number(count), is_empty=True)
    elif node.op == "TensorListFromTensor":
        shape = facts.shape(inputs[0])
        facts.elements[output] = Element() if shape is None else _rows(shape)
    elif node.op == "TensorListSetItem":  # what is left out is read as zeros
        may_grow = attr_of(node, "resize_if_index_out_of_bounds").b
        length = None if may_grow else first.length
        item = Element(facts.shape(inputs[-1]), length=length)
        facts.elements[output] = joined(first, item)
    elif node.op == "TensorListPushBack":
        facts.elements[output] = joined(first, _as_element(facts, inputs[-1]))
    elif node.op == "Identity":
        facts.elements[output] = first
    elif node.op in _PASS_ON:
        length = None if node.op == "TensorListResize" else first.length
        facts.elements[output] = dataclasses.replace(first, value=None, length=length)
    elif node.op == "AddN":
        for tensor in inputs[1:]:
            first = joined(first, facts.elements.get(tensor, Element()))
        facts.elements[output] = dataclasses.replace(first, value=None)
    elif node.op == "TensorListElementShape":
        if first.shape is not None and not is_open(first.shape):
            facts.learn_shape(output, (len(first.shape),))
            facts.learn_value(output, np.array(first.shape, facts.dtype(output)))
    elif node.op == "TensorListLength":
        if first.length is not None:
            facts.learn_value(output, np.array(first.length, np.int32))
    elif node.op in _ELEMENT_READERS:
        _read_element(facts, node, inputs, first)
    if node.op == "TensorListPopBack":
        facts.elements[output] = dataclasses.replace(first, length=None)


def _read_element(facts: "Facts", node: Any, inputs: Sequence[str], element: Element) -> None:
    index, before = _ELEMENT_READERS[node.op]
    tensor = f"{node.name}:{index}"
    if not before:
        facts.learn_shape(tensor, element.shape)
        value = element.array()
        if value is not None:
            facts.learn_value(tensor, value)
        return
    known = facts.shape(tensor)
    count = known[0] if known else -1
    if count < 0 and element.length is not None:
        count = element.length
    if node.op == "TensorListGather":
        count = (facts.shape(inputs[1]) or (-1,))[0]
    if element.shape is not None:
        facts.learn_shape(tensor, (count, *element.shape))


def _as_element(facts: "Facts", tensor: str) -> Element:
    shape, value = facts.shape(tensor), facts.value(tensor)
    if value is None:
        return Element(shape)
    return Element(shape, (str(value.dtype), value.shape, value.tobytes()))


def joined(one: Element, other: Element) -> Element:
    """What is known of all elements of two lists."""
    length = one.length if one.length == other.length else None
    if one.is_empty or other.is_empty:
        return dataclasses.replace(other if one.is_empty else one, length=length)
    return Element(
        one.shape if one.shape == other.shape else None,
        one.value if one.value == other.value else None,
        length,
    )


def _rows(shape: tuple[int, ...]) -> Element:
    return Element(shape[1:], length=shape[0] if shape[0] >= 0 else None)


def _number(value: np.ndarray | None) -> int | None:
    return None if value is None else int(value)


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

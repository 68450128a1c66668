"""What the elements of TensorLists have in common, which TensorFlow does not infer."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphs.protos import NodeDef
from rewrite.split.decision import Shape, attr_of, is_open

if TYPE_CHECKING:
    from rewrite.split.decide.shape_facts import Facts

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


def complete_list(facts: "Facts", node: NodeDef, inputs: Sequence[str]) -> None:
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


def _read_element(facts: "Facts", node: NodeDef, inputs: Sequence[str], element: Element) -> None:
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

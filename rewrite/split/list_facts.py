"""What is known of a graph's tensors; of TensorLists what their elements have in common.

TensorFlow infers nothing of what a list holds.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.building.op_outputs import attr_of
from graphs.building.shapes import TensorProperties
from graphs.protos import NodeDef, Shape, is_open
from rewrite.split.constant_folding import KnownValues

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


class TensorFacts:
    """Shapes and values of a graph's tensors, and what lists hold, as far as they are known."""

    def __init__(self, properties: TensorProperties, values: KnownValues):
        self.dtype_of = properties.dtype_of
        self.shape_of = {name: list(shapes) for name, shapes in properties.shape_of.items()}
        self.values = values.copy()
        self.elements: dict[str, Element] = {}
        """{list "op:i": what its elements are}."""
        self._properties = properties
        self._news: set[str] = set()

    @property
    def properties(self) -> TensorProperties:
        """The properties with all that was learned."""
        return dataclasses.replace(self._properties, shape_of=self.shape_of)

    def shape(self, tensor: str) -> Shape:
        """The shape of "op:i"."""
        op, _, index = tensor.partition(":")
        return self.shape_of[op][int(index)]

    def dtype(self, tensor: str) -> str:
        """The dtype of "op:i"."""
        op, _, index = tensor.partition(":")
        return self.dtype_of[op][int(index)]

    def value(self, tensor: str) -> np.ndarray | None:
        """The value of "op:i" that no run can change."""
        return self.values.value(tensor)

    def learn_shape(self, tensor: str, shape: Shape) -> None:
        """Notes a shape where less was known."""
        op, _, index = tensor.partition(":")
        if shape is not None and is_open(self.shape_of[op][int(index)]):
            self.shape_of[op][int(index)] = shape
            self._news.add(tensor)

    def learn_value(self, tensor: str, value: np.ndarray) -> None:
        """Notes a value."""
        if self.value(tensor) is None:
            self.values.learn(tensor, value)
            self._news.add(tensor)


def complete_list(facts: TensorFacts, node: NodeDef, inputs: Sequence[str]) -> None:
    output = f"{node.name}:0"
    first = facts.elements.get(inputs[0], Element()) if inputs else Element()
    if node.op in ("TensorListReserve", "EmptyTensorList"):
        count = facts.value(inputs[1]) if node.op == "TensorListReserve" else None
        facts.elements[output] = Element(
            length=None if count is None else int(count), is_empty=True
        )
    elif node.op == "TensorListFromTensor":
        shape = facts.shape(inputs[0])
        facts.elements[output] = Element() if shape is None else _rows(shape)
    elif node.op == "TensorListSetItem":  # what is left out is read as zeros
        length = None if attr_of(node, "resize_if_index_out_of_bounds").b else first.length
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


def _read_element(
    facts: TensorFacts, node: NodeDef, inputs: Sequence[str], element: Element
) -> None:
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


def _as_element(facts: TensorFacts, tensor: str) -> Element:
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

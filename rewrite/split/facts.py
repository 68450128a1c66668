"""Shapes and values that TensorFlow's inference doesn't see: behind loops, in lists, in bodies.

TensorFlow infers nothing through a loop whose declared shapes are open, and nothing through a
TensorList. `Facts` begins with what is known of a graph and learns the rest op by op, in the order
of the graph, as the rules are asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input, with_index
from rewrite.split.known_values import SHAPE_OPS, KnownValues
from rewrite.split.one_op import may_run, one_op
from rewrite.split.op_view import Shape

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


class Facts:
    """Shapes and values of a graph's tensors, and what lists hold, as far as they are known."""

    def __init__(self, flat: FlatGraph, properties: TensorProperties, values: KnownValues):
        self.flat = flat
        self.dtype_of = properties.dtype_of
        self.shape_of = {name: list(shapes) for name, shapes in properties.shape_of.items()}
        self.values = values.copy()
        self.elements: dict[str, Element] = {}
        """{list "op:i": what its elements are}."""
        self.same_as: dict[str, str] = {}
        """{"op:i": tensor that it always is}, of what loops hand on unchanged."""
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

    def handle(self, tensor: str) -> Any | None:
        """The VarHandleOp that a resource comes from."""
        tensor = self.same_as.get(tensor, tensor)
        node = self.flat.nodes.get(tensor.partition(":")[0])
        while node is not None and node.op == "Identity":
            node = self.flat.nodes.get(node.input[0].partition(":")[0])
        return node if node is not None and node.op == "VarHandleOp" else None

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

    def learn_same(self, tensor: str, other: str) -> None:
        """Notes that a tensor is always another one."""
        self.same_as[tensor] = self.same_as.get(other, other)
        self._news.add(tensor)

    def complete(self, node: Any) -> None:
        """Learns what there is to know of the outputs of an op, of that of its inputs."""
        inputs = [with_index(parse_input(n).tensor) for n in node.input if not n.startswith("^")]
        if node.op == "VariableShape":
            self._variable_shape(node, inputs[0])
        elif any(self.dtype(tensor) == "variant" for tensor in inputs) or "TensorList" in node.op:
            self._complete_list(node, inputs)
        elif node.op in SHAPE_OPS:
            self._complete_shape(node, inputs)
        elif node.name not in self.flat.unit_of_node and self._is_incomplete(node, inputs):
            self._infer(node, inputs)

    def _variable_shape(self, node: Any, handle: str) -> None:
        producer = self.handle(handle)
        shape = None if producer is None else [d.size for d in producer.attr["shape"].shape.dim]
        if shape is not None and min(shape, default=0) >= 0:
            self.learn_shape(f"{node.name}:0", (len(shape),))
            self.learn_value(f"{node.name}:0", np.array(shape, self.dtype(f"{node.name}:0")))

    def _complete_shape(self, node: Any, inputs: Sequence[str]) -> None:
        for index, tensor in enumerate(inputs):
            shape = self.shape(tensor)
            if is_open(shape) or shape is None or self.value(f"{node.name}:{index}") is not None:
                continue
            number: Any = {"Rank": len(shape), "Size": int(np.prod(shape))}.get(node.op, shape)
            value = np.array(number, self.dtype_of[node.name][index])
            self.learn_value(f"{node.name}:{index}", value)

    def _is_incomplete(self, node: Any, inputs: Sequence[str]) -> bool:
        """Whether something is unknown of the outputs that what was learned might show."""
        if self._news.isdisjoint(inputs):
            return False
        if any(is_open(shape) for shape in self.shape_of[node.name]):
            return True
        return (
            bool(self.shape_of[node.name])
            and self.value(f"{node.name}:0") is None
            and all(self.value(tensor) is not None for tensor in inputs)
            and may_run(node, self.dtype_of[node.name], self.shape_of[node.name])
        )

    def _infer(self, node: Any, inputs: Sequence[str]) -> None:
        specs = [
            (self.dtype(t), self.shape(t), self.value(t), self.handle(t)) for t in inputs
        ]
        shapes, values = one_op(node, specs)
        for index, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self.learn_shape(f"{node.name}:{index}", shape)
            if value is not None:
                self.learn_value(f"{node.name}:{index}", value)

    # -- lists -----------------------------------------------------------------------------------

    def _complete_list(self, node: Any, inputs: Sequence[str]) -> None:
        output = f"{node.name}:0"
        first = self.elements.get(inputs[0], Element()) if inputs else Element()
        if node.op in ("TensorListReserve", "EmptyTensorList"):
            is_reserved = node.op == "TensorListReserve"
            count = self.value(inputs[1]) if is_reserved else None
            self.elements[output] = Element(length=_number(count), is_empty=True)
        elif node.op == "TensorListFromTensor":
            shape = self.shape(inputs[0])
            self.elements[output] = Element() if shape is None else _rows(shape)
        elif node.op == "TensorListSetItem":  # what is left out is read as zeros
            item = Element(self.shape(inputs[-1]), length=first.length)
            self.elements[output] = joined(first, item)
        elif node.op == "TensorListPushBack":
            self.elements[output] = joined(first, self._as_element(inputs[-1]))
        elif node.op == "Identity":
            self.elements[output] = first
        elif node.op in _PASS_ON:
            length = None if node.op == "TensorListResize" else first.length
            self.elements[output] = dataclasses.replace(first, value=None, length=length)
        elif node.op == "AddN":
            for tensor in inputs[1:]:
                first = joined(first, self.elements.get(tensor, Element()))
            self.elements[output] = dataclasses.replace(first, value=None)
        elif node.op == "TensorListElementShape":
            if first.shape is not None and not is_open(first.shape):
                self.learn_shape(output, (len(first.shape),))
                self.learn_value(output, np.array(first.shape, self.dtype(output)))
        elif node.op == "TensorListLength":
            if first.length is not None:
                self.learn_value(output, np.array(first.length, np.int32))
        elif node.op in _ELEMENT_READERS:
            self._read_element(node, inputs, first)
        if node.op == "TensorListPopBack":
            self.elements[output] = dataclasses.replace(first, length=None)

    def _read_element(self, node: Any, inputs: Sequence[str], element: Element) -> None:
        index, before = _ELEMENT_READERS[node.op]
        tensor = f"{node.name}:{index}"
        if not before:
            self.learn_shape(tensor, element.shape)
            value = element.array()
            if value is not None:
                self.learn_value(tensor, value)
            return
        known = self.shape(tensor)
        count = known[0] if known else -1
        if count < 0 and element.length is not None:
            count = element.length
        if node.op == "TensorListGather":
            count = (self.shape(inputs[1]) or (-1,))[0]
        if element.shape is not None:
            self.learn_shape(tensor, (count, *element.shape))

    def _as_element(self, tensor: str) -> Element:
        shape, value = self.shape(tensor), self.value(tensor)
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


def joined_shape(one: Shape, other: Shape) -> Shape:
    """A shape that both have; -1 where they differ."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))


def is_open(shape: Shape) -> bool:
    """Whether a rank or a dimension is not known."""
    return shape is None or min(shape, default=0) < 0

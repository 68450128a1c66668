"""Values that constants and static shapes of a graph fix before it runs: bounds of loops, sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphs import op_types
from graphs.building.shapes import TensorProperties
from graphs.names import data_inputs, parse_input, tensor_of
from graphs.tensor_protos import constant

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
}
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
_DEEPEST = 100


class ConstantValues:
    """Evaluates the tensors of a flat graph that don't depend on a run's values."""

    def __init__(self, nodes: Mapping[str, Any], properties: TensorProperties):
        self._nodes = nodes
        self._properties = properties
        self._known: dict[str, np.ndarray | None] = {}

    def value(self, tensor: str, depth: int = 0) -> np.ndarray | None:
        """The array that "op:i" or "op" always has; None where a run decides it."""
        # Each op is evaluated once: an op that uses one tensor twice would double the work.
        tensor = tensor_of(tensor)
        if tensor not in self._known:
            self._known[tensor] = self._evaluated(tensor, depth)
        return self._known[tensor]

    def learn(self, tensor: str, value: int) -> None:
        """Notes what "op:i" always is."""
        self._known[tensor] = np.array(value)

    def scalar(self, tensor: str) -> int | None:
        """The whole number that a tensor always is; None where it is none."""
        return whole(self.value(tensor))

    def _evaluated(self, tensor: str, depth: int) -> np.ndarray | None:
        node = self._nodes.get(parse_input(tensor).op)
        if node is None or depth > _DEEPEST:
            return None
        if node.op == "Const":
            return constant(node)
        if node.op == "Shape":
            return self._shape(node)
        inputs = data_inputs(node)
        if node.op in op_types.VALUE:
            return self.value(inputs[0], depth + 1)
        if node.op in _BINARY or node.op == "StridedSlice":
            values = [self.value(name, depth + 1) for name in inputs]
            if all(value is not None for value in values):
                return _computed(node, values)
        return None

    def _shape(self, node: Any) -> np.ndarray | None:
        source = parse_input(node.input[0])
        shape = self._properties.shape_of.get(source.op, [None])[source.output]
        if shape is None or min(shape, default=0) < 0:
            return None
        return np.array(shape, dtype=np.int64)


def whole(value: np.ndarray | None) -> int | None:
    """The number that an array of one integer holds; None for any other array."""
    if value is None or value.size != 1 or value.dtype.kind not in "iu":
        return None
    return int(value.reshape(()))


def _computed(node: Any, values: list[Any]) -> np.ndarray | None:
    """What arithmetic, or a slice of a vector, makes of known inputs."""
    if node.op != "StridedSlice":
        if node.op.startswith("Floor") and not np.all(values[1]):
            return None
        return np.asarray(_BINARY[node.op](values[0], values[1]))
    if any(node.attr[mask].i for mask in _MASKS if mask in node.attr) or values[0].ndim != 1:
        return None
    begin, end, stride = (int(value.reshape(-1)[0]) for value in values[1:])
    if node.attr["shrink_axis_mask"].i:
        return np.asarray(values[0][begin]) if -values[0].size <= begin < values[0].size else None
    return np.asarray(values[0][begin:end:stride]) if stride else None

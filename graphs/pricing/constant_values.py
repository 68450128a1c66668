"""Values that a graph's constants and static shapes fix before it runs: bounds of loops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.names import parse_input

_PASSES = frozenset("Identity Cast Enter RefEnter StopGradient PreventGradient Squeeze".split())
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
}
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
_DEEPEST = 100


class ConstantValues:
    """Evaluates tensors of a flat graph as far as they don't depend on a run's values."""

    def __init__(self, nodes: Any, properties: TensorProperties):
        self._nodes = {node.name: node for node in nodes}
        self._properties = properties

    def value(self, tensor: str, depth: int = 0) -> np.ndarray | None:
        """The array that "op:i" or "op" always has, or None."""
        source = parse_input(tensor)
        node = self._nodes.get(source.op)
        if node is None or depth > _DEEPEST:
            return None
        if node.op == "Const":
            return constant(node)
        if node.op == "Shape":
            return self._shape(node)
        inputs = [name for name in node.input if not name.startswith("^")]
        if node.op in _PASSES:
            return self.value(inputs[0], depth + 1)
        if node.op in _BINARY or node.op == "StridedSlice":
            values = [self.value(name, depth + 1) for name in inputs]
            if all(value is not None for value in values):
                return _computed(node, values)
        return None

    def scalar(self, tensor: str) -> int | None:
        """The whole number that a tensor always is, or None."""
        return whole(self.value(tensor))

    def _shape(self, node: Any) -> np.ndarray | None:
        source = parse_input(node.input[0])
        shape = self._properties.shape_of.get(source.op, [None])[source.output]
        if shape is None or min(shape, default=0) < 0:
            return None
        return np.array(shape, dtype=np.int64)


def constant(node: Any) -> np.ndarray | None:
    """The value of a Const; None where it is damaged."""
    import tensorflow as tf
    from google.protobuf import message

    try:
        return np.asarray(tf.make_ndarray(node.attr["value"].tensor))
    except (TypeError, ValueError, message.Error):
        return None


def whole(value: np.ndarray | None) -> int | None:
    """A single integer as a number."""
    if value is None or value.size != 1 or value.dtype.kind not in "iu":
        return None
    return int(value.reshape(()))


def _computed(node: Any, values: list[Any]) -> np.ndarray | None:
    if node.op != "StridedSlice":
        if node.op == "FloorDiv" and not np.all(values[1]):
            return None
        return np.asarray(_BINARY[node.op](values[0], values[1]))
    if any(node.attr[mask].i for mask in _MASKS if mask in node.attr) or values[0].ndim != 1:
        return None
    begin, end, stride = (int(value.reshape(-1)[0]) for value in values[1:])
    if node.attr["shrink_axis_mask"].i:
        return np.asarray(values[0][begin]) if -values[0].size <= begin < values[0].size else None
    return np.asarray(values[0][begin:end:stride]) if stride else None

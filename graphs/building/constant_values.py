"""Values that constants and static shapes of a graph fix before it runs: bounds of loops, sizes."""

import collections
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphs import op_types
from graphs.building.same_shapes import has_state
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input, tensor_of
from graphs.protos import NodeDef, Nodes, attribute, constant

_BINARY: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
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
_HANG_ON_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
MOST_FOLDED_BYTES = 10 << 20
"""TensorFlow folds no constant that is larger, unless it is no larger than what it is made of."""


def folded_nodes(flat: FlatGraph, properties: TensorProperties) -> npt.NDArray[np.bool_]:
    """bool[nodes]: what TensorFlow computes of constants before the first step, and then keeps.

    A size counts as a constant for the batch that the graph is inferred with. Ops with a state,
    with functions and of control flow are never folded. What is read for a size alone goes, too,
    and what a convolution is multiplied by goes into its filter where both are constants.
    """
    fed, open_ended = {op_of(spec.tensor) for spec in flat.feeds}, set(properties.unknown)
    nodes, constants, kept = flat.graph_def.node, set[str](), set[str]()
    read = collections.Counter(op_of(name) for node in nodes for name in node.input)
    stays, seen = (set(flat.nodes) - read.keys()) | fed | set(map(op_of, flat.fetches)), set[str]()
    for node in nodes:
        inputs = data_inputs(node)
        seen.add(node.name)
        stays.update(name for name in map(op_of, node.input) if name not in seen)  # of a loop
        if node.op in op_types.CONTROL_FLOW or node.name in flat.unit_of_node or has_state(node.op):
            stays.add(node.name)
        if node.name in fed or node.op in op_types.CONTROL_FLOW or node.name in flat.unit_of_node:
            continue
        is_size = node.op in _HANG_ON_SHAPES and open_ended.isdisjoint(map(tensor_of, inputs))
        is_size = is_size and properties.dtype_of[node.name][0] != "variant"
        all_known = bool(inputs) and all(op_of(name) in constants for name in inputs)
        if node.op == "Const" or ((is_size or all_known) and not has_state(node.op)):
            constants.add(node.name)
            most = MOST_FOLDED_BYTES
            if kept.issuperset(map(op_of, inputs)):
                most = max(most, sum(map(properties.num_bytes, inputs)))
            if node.op == "Const" or sum(properties.bytes_of[node.name]) <= most:
                kept.add(node.name)

    def scales(one: str, other: str) -> bool:
        conv = flat.nodes[op_of(one)]
        return (
            conv.op in ("Conv2D", "Conv3D")
            and read[conv.name] == 1
            and kept.issuperset(map(op_of, (conv.input[1], other)))
            and math.prod(properties.shape(other) or ())
            in (1, *(properties.shape(conv.input[1]) or ())[-1:])
        )

    folded = np.zeros(len(nodes), np.bool_)
    for i in reversed(range(len(nodes))):
        name, inputs = nodes[i].name, data_inputs(nodes[i])
        folded[i] = name in kept or name not in stays
        if not folded[i]:
            stays.update(map(op_of, nodes[i].input))
            folded[i] = nodes[i].op == "Mul" and (scales(*inputs) or scales(*inputs[::-1]))
    return folded


HANDS_ON = {
    **dict.fromkeys(
        "Sum Mean Prod Max Min All Any Tile BroadcastTo Pad PadV2 MirrorPad".split(), 0
    ),
    **dict.fromkeys(("Slice", "StridedSlice", "Transpose", "SplitV", "Pack", "AddN"), 0),
    "Split": 1,
}
"""Their kernels hand this input on where they have nothing to leave out, to repeat or to add."""


def handing_on(flat: FlatGraph, properties: TensorProperties) -> npt.NDArray[np.bool_]:
    """bool[nodes]: what only hands its input on, by the sizes and axes that it is given."""
    open_ended = set(properties.unknown)

    def hands_on(node: NodeDef) -> bool:
        if node.op not in HANDS_ON or len(properties.shape_of[node.name]) > 1:
            return False
        inputs = data_inputs(node)
        source = tensor_of(inputs[HANDS_ON[node.op]])
        if not open_ended.isdisjoint((source, f"{node.name}:0")):
            return False
        shape = properties.shape(source) or ()
        if node.op == "AddN":
            return len(inputs) == 1
        if node.op == "StridedSlice":
            strides = _elements(inputs[3], flat, properties)
            is_in_order = strides is not None and bool((strides == 1).all())
        elif node.op == "Transpose":
            axes = _elements(inputs[1], flat, properties)
            long = [] if axes is None else [axis for axis in axes.tolist() if shape[axis] != 1]
            is_in_order = axes is not None and long == sorted(long)
        else:
            is_in_order = True
        return is_in_order and math.prod(shape) == math.prod(properties.shape(node.name) or ())

    return np.array([hands_on(node) for node in flat.graph_def.node], np.bool_)


def _elements(tensor: str, flat: FlatGraph, properties: TensorProperties) -> np.ndarray | None:
    """What says sizes or axes; None where a run decides it."""
    node, exact = flat.nodes[op_of(tensor)], properties.known_of(tensor).exact
    node = type(node).FromString(exact) if exact else node
    return constant(node) if node.op == "Const" else None


class ConstantValues:
    """Evaluates the tensors of a flat graph that don't depend on a run's values."""

    def __init__(self, nodes: Nodes, properties: TensorProperties):
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

    def _shape(self, node: NodeDef) -> np.ndarray | None:
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


def _computed(node: NodeDef, values: list[Any]) -> np.ndarray | None:
    """What arithmetic, or a slice of a vector, makes of known inputs."""
    if node.op != "StridedSlice":
        if node.op.startswith("Floor") and not np.all(values[1]):
            return None
        return np.asarray(_BINARY[node.op](values[0], values[1]))
    if any(node.attr[mask].i for mask in _MASKS if mask in node.attr) or values[0].ndim != 1:
        return None
    begin, end, stride = (int(value.reshape(-1)[0]) for value in values[1:])
    if attribute(node, "shrink_axis_mask").i:
        return np.asarray(values[0][begin]) if -values[0].size <= begin < values[0].size else None
    return np.asarray(values[0][begin:end:stride]) if stride else None

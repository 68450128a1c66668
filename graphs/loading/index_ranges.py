"""How large an integer input may be: what it indexes is followed through the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from graphs.building.shapes import Shape, TensorProperties
from graphs.names import parse_input

# {op type: positions of the inputs whose elements come out again unchanged}; None for all.
PASSES_ON: Mapping[str, tuple[int, ...] | None] = {
    "Identity": None,
    "IdentityN": None,
    "StopGradient": None,
    "PreventGradient": None,
    "PlaceholderWithDefault": None,
    "Snapshot": None,
    "Pack": None,
    "ConcatV2": None,
    "Concat": None,
    "ParallelConcat": None,
    "DynamicStitch": None,
    "Merge": None,
    "Cast": (0,),
    "Reshape": (0,),
    "Transpose": (0,),
    "ExpandDims": (0,),
    "Squeeze": (0,),
    "EnsureShape": (0,),
    "Unpack": (0,),
    "Split": (1,),
    "SplitV": (0,),
    "StridedSlice": (0,),
    "Slice": (0,),
    "Tile": (0,),
    "BroadcastTo": (0,),
    "ReverseV2": (0,),
    "ReverseSequence": (0,),
    "Pad": (0,),
    "PadV2": (0,),
    "MirrorPad": (0,),
    "GatherV2": (0,),
    "Gather": (0,),
    "GatherNd": (0,),
    "DynamicPartition": (0,),
    "Unique": (0,),
    "UniqueV2": (0,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Switch": (0,),
    "RefSwitch": (0,),
    "Enter": (0,),
    "Exit": (0,),
    "ReadVariableOp": (0,),
}
# Unique's second output holds positions, not elements.
_FIRST_OUTPUT_ONLY = frozenset({"Unique", "UniqueV2"})
_SEGMENT_OPS = frozenset({"UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMean"})
# {op type: (position of the indices, position of what they index)}, along its first dimension.
_INDEXES_ROWS = {
    "Gather": (1, 0),
    "ResourceGather": (1, 0),
    "ScatterSub": (1, 0),
    "ScatterAdd": (1, 0),
    "ScatterUpdate": (1, 0),
    "ResourceScatterSub": (1, 0),
    "ResourceScatterAdd": (1, 0),
    "ResourceScatterUpdate": (1, 0),
    "SparseSegmentSum": (1, 0),
    "SparseSegmentMean": (1, 0),
    "SparseSegmentSqrtN": (1, 0),
}
# The same, along the last dimension: classes.
_INDEXES_CLASSES = {
    "SparseSoftmaxCrossEntropyWithLogits": (1, 0),
    "InTopK": (1, 0),
    "InTopKV2": (1, 0),
}
# What the ids of a partitioned table go through.
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
}


class _Scale(NamedTuple):
    """What bounds an element by `size` bounds the input by size * factor + offset."""

    factor: int
    offset: int


_SAME = _Scale(1, 0)


def users_of_tensors(graph_def: Any) -> dict[str, list[tuple[Any, int]]]:
    """{tensor: nodes that read it, and at which input}; control edges left out."""
    users: dict[str, list[tuple[Any, int]]] = {}
    for node in graph_def.node:
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                users.setdefault(parse_input(name).tensor, []).append((node, position))
    return users


class IndexRanges:
    """Upper limits of the integers in a flat graph."""

    def __init__(self, graph_def: Any, properties: TensorProperties):
        self._nodes = {node.name: node for node in graph_def.node}
        self._properties = properties
        self._users = users_of_tensors(graph_def)

    def limit(self, tensor: str) -> int | None:
        """The smallest size that elements of `tensor` index; None where they index nothing."""
        limits = []
        pending = [(tensor, _SAME)]
        reached = set(pending)
        while pending:
            name, scale = pending.pop()
            for node, position in self._users.get(name, ()):
                size = self._indexed_size(node, position)
                if size is not None and size > 0:
                    limits.append(size * scale.factor + scale.offset)
                changed = self._changed(node, position, scale)
                for output in self._passed_on(node, position, changed is not None):
                    following = (output, changed or scale)
                    if following not in reached:
                        reached.add(following)
                        pending.append(following)
        return min((limit for limit in limits if limit > 0), default=None)

    def _changed(self, node: Any, position: int, scale: _Scale) -> _Scale | None:
        """The scale behind a division by a constant, a difference with one, or a maximum."""
        if node.op == "Maximum":
            return scale
        if node.op not in ("FloorDiv", "Sub") or position != 0:
            return None
        constant = self._constant(node, 1)
        if constant is None or constant < (node.op == "FloorDiv"):
            return None
        if node.op == "Sub":
            return _Scale(scale.factor, scale.offset + constant * scale.factor)
        return _Scale(scale.factor * constant, scale.offset)

    def _passed_on(self, node: Any, position: int, is_changed: bool) -> list[str]:
        """The outputs that hold the elements of an input."""
        if is_changed:
            return [f"{node.name}:0"]
        if node.op not in PASSES_ON:
            return []
        positions = PASSES_ON[node.op]
        if positions is not None and position not in positions:
            return []
        if node.op == "IdentityN":
            return [f"{node.name}:{position}"]
        count = 1 if node.op in _FIRST_OUTPUT_ONLY else len(self._properties.shape_of[node.name])
        return [f"{node.name}:{i}" for i in range(count)]

    def _indexed_size(self, node: Any, position: int) -> int | None:
        """The size of the dimension that an input of a node indexes."""
        if node.op in _INDEXES_ROWS and _INDEXES_ROWS[node.op][0] == position:
            return _size(self._shape(node, _INDEXES_ROWS[node.op][1]), 0)
        if node.op in _INDEXES_CLASSES and _INDEXES_CLASSES[node.op][0] == position:
            return _size(self._shape(node, _INDEXES_CLASSES[node.op][1]), -1)
        if node.op == "GatherV2" and position == 1:
            axis = self._constant(node, 2)
            return _size(self._shape(node, 0), 0 if axis is None else axis)
        if node.op == "OneHot" and position == 0:
            return self._constant(node, 1)
        if node.op == "DynamicPartition" and position == 1:
            return int(node.attr["num_partitions"].i)
        if node.op in _SEGMENT_OPS and position == 1:
            return self._constant(node, 2)
        return None

    def _shape(self, node: Any, position: int) -> Shape:
        """The shape of an input; of a resource, the shape of its variable."""
        source = parse_input(node.input[position])
        while self._nodes[source.op].op in ("Identity", "Enter", "Switch"):
            source = parse_input(self._nodes[source.op].input[0])
        producer = self._nodes[source.op]
        if producer.op == "VarHandleOp":
            proto = producer.attr["shape"].shape
            return None if proto.unknown_rank else tuple(int(dim.size) for dim in proto.dim)
        return self._properties.shape_of[producer.name][source.output]

    def _constant(self, node: Any, position: int) -> int | None:
        """The value of an input that is a constant scalar, or whole arithmetic of such."""
        source = self._nodes[parse_input(node.input[position]).op]
        while source.op in ("Identity", "Cast"):
            source = self._nodes[parse_input(source.input[0]).op]
        if source.op in _ARITHMETIC:
            left, right = self._constant(source, 0), self._constant(source, 1)
            if left is None or right is None or (right == 0 and source.op.startswith("Floor")):
                return None
            return _ARITHMETIC[source.op](left, right)
        if source.op != "Const":
            return None
        import tensorflow as tf
        from google.protobuf import message

        try:
            value = tf.make_ndarray(source.attr["value"].tensor)
        except (TypeError, ValueError, message.Error):
            return None
        return int(value) if value.size == 1 and value.dtype.kind in "iu" else None


def _size(shape: Sequence[int] | None, axis: int) -> int | None:
    """The size of a dimension where it is known."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis] if shape[axis] >= 0 else None

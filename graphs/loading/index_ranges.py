"""How large the integers of an input may be, by what they index.

An input's elements are followed through the graph to the ops that use them as indices. What is
divided or diminished on the way may be larger: the ids of a partitioned table go through that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphs import op_types
from graphs.loading.element_flow import ElementFlow
from graphs.names import op_of, source_of
from graphs.tensor_protos import Shape, shape_of

_SEGMENT_OPS = frozenset({"UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMean"})
# Input 1 of these indexes rows of input 0, which is a table or the gradient of one.
_INDEX_ROWS = frozenset(
    "Gather ResourceGather ScatterSub ScatterAdd ScatterUpdate ResourceScatterSub "
    "ResourceScatterAdd ResourceScatterUpdate SparseSegmentSum SparseSegmentMean "
    "SparseSegmentSqrtN".split()
)
# Input 1 of these indexes the last dimension of input 0: classes.
_INDEX_CLASSES = frozenset({"SparseSoftmaxCrossEntropyWithLogits", "InTopK", "InTopKV2"})


class _Scale(NamedTuple):
    """Elements below `size` are made of inputs below size * factor + offset."""

    factor: int
    offset: int


_SAME = _Scale(1, 0)


class IndexRanges:
    """Upper limits of the integers in a flat graph."""

    def __init__(self, flow: ElementFlow):
        self._flow = flow
        self._nodes = flow.flat.nodes
        self._values = flow.values

    def limit(self, tensor: str) -> int | None:
        """The smallest size that elements of `tensor` index; None where they index nothing."""
        limits = []
        pending = [(tensor, _SAME)]
        reached = set(pending)
        while pending:
            name, scale = pending.pop()
            for node, position in self._flow.readers.get(name, ()):
                size = self._indexed_size(node, position)
                if size is not None and size > 0:
                    limits.append(size * scale.factor + scale.offset)
                changed = self._changed(node, position, scale)
                outputs = self._flow.passed_on(node, position)
                for output in [f"{node.name}:0"] if changed else outputs:
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
        constant = self._values.scalar(node.input[1])
        if constant is None or constant < (node.op == "FloorDiv"):
            return None
        if node.op == "Sub":
            return _Scale(scale.factor, scale.offset + constant * scale.factor)
        return _Scale(scale.factor * constant, scale.offset)

    def _indexed_size(self, node: Any, position: int) -> int | None:
        """The size of the dimension that an input of a node indexes."""
        if node.op == "OneHot" and position == 0:
            return self._values.scalar(node.input[1])
        if position == 2 and node.op == "CTCLoss":  # the last class is the blank
            classes = _size(self._shape(node.input[0]), -1)
            return None if classes is None else classes - 1
        if position != 1:
            return None
        if node.op in ("GatherNd", "ResourceGatherNd"):
            places, shape = self._shape(node.input[1]), self._shape(node.input[0])
            return min(shape[: places[-1]], default=None) if places and shape else None
        if node.op in _INDEX_ROWS:
            return _size(self._shape(node.input[0]), 0)
        if node.op in _INDEX_CLASSES:
            return _size(self._shape(node.input[0]), -1)
        if node.op == "GatherV2":
            axis = self._values.scalar(node.input[2])
            return _size(self._shape(node.input[0]), 0 if axis is None else axis)
        if node.op == "DynamicPartition":
            return int(node.attr["num_partitions"].i)
        if node.op in _SEGMENT_OPS:
            return self._values.scalar(node.input[2])
        return None

    def _shape(self, tensor: str) -> Shape:
        """The shape of a tensor; of a resource, the shape of its variable."""
        source = source_of(tensor, self._nodes, op_types.HANDLE)
        producer = self._nodes[op_of(source)]
        if producer.op == "VarHandleOp":
            return shape_of(producer.attr["shape"].shape)
        return self._flow.properties.shape(source)


def _size(shape: Sequence[int] | None, axis: int) -> int | None:
    """The size of a dimension; None where it is not known."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis] if shape[axis] >= 0 else None

"""What the numbers of an input must be, by the ops that read them.

An input's elements are followed through the graph to the ops that use them: as indices, lengths,
ids of segments, sizes. What is divided or diminished on the way may be larger: the ids of a
partitioned table go through that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphs import op_types
from graphs.building.shapes import infer
from graphs.building.unit_bodies import UnitFunction, argument_name, unit_bodies
from graphs.errors import ModelError
from graphs.loading.element_flow import ElementFlow
from graphs.loading.number_forms import FED_SIZE, INTEGER_LIMIT, REAL, WHOLE, Form
from graphs.names import op_of, parse_input, source_of
from graphs.tensor_protos import Shape, shape_of

# Input 1 of these indexes rows of input 0, which is a table or the gradient of one.
_INDEX_ROWS = frozenset(
    "Gather ResourceGather ScatterSub ScatterAdd ScatterUpdate ResourceScatterSub "
    "ResourceScatterAdd ResourceScatterUpdate SparseSegmentSum SparseSegmentMean "
    "SparseSegmentSqrtN SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments "
    "SparseSegmentSqrtNWithNumSegments".split()
)
# Input 1 of these indexes the last dimension of input 0: classes.
_INDEX_CLASSES = frozenset({"SparseSoftmaxCrossEntropyWithLogits", "InTopK", "InTopKV2"})
# The rows of input 1 of these are places in input 0.
_INDEX_PLACES = frozenset(
    "GatherNd ResourceGatherNd TensorScatterAdd TensorScatterSub TensorScatterUpdate "
    "TensorScatterMax TensorScatterMin ResourceScatterNdAdd ResourceScatterNdUpdate".split()
)
_FORMS: dict[tuple[str, int], str] = {
    **{(op, 1): "length" for op in ("ReverseSequence", "CTCGreedyDecoder", "CTCBeamSearchDecoder")},
    **{(op, 3): "length" for op in ("CTCLoss", "CTCLossV2")},
    **{(f"Segment{kind}", 1): "sorted" for kind in ("Sum", "Mean", "Max", "Min", "Prod")},
    **{
        (f"SparseSegment{kind}{more}", 2): "sorted"
        for kind in ("Sum", "Mean", "SqrtN")
        for more in ("", "WithNumSegments", "Grad", "GradV2")
    },
    **{(op, 0): "size" for op in ("Fill", "RandomUniform", "RandomStandardNormal")},
    **{(op, 1): "size" for op in ("OneHot", "TopKV2", "Range")},
    **{(f"UnsortedSegment{kind}", 2): "size" for kind in ("Sum", "Max", "Min", "Prod")},
    ("Reshape", 1): "rest", ("Slice", 1): "zeros", ("Slice", 2): "rest", ("Tile", 1): "ones",
    ("GatherV2", 2): "zeros", ("ConcatV2", -1): "zeros", ("Transpose", 1): "order",
    ("InvertPermutation", 0): "order",
    ("SoftmaxCrossEntropyWithLogits", 1): "share",
    **{(op, 0): "positive" for op in ("Log", "Log1p", "Sqrt", "Rsqrt", "Lgamma", "Digamma")},
    **{
        (op, 0): "definite"
        for op in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "LogMatrixDeterminant",
                   "MatrixSolve", "MatrixTriangularSolve")
    },
}  # fmt: skip
"""{(op type, position of an input): what its numbers have to be like}, see number_forms."""
_DEEPEST = 3  # of units in units: a recursion has no end
_COMPARED = frozenset({"Less", "LessEqual", "Greater", "GreaterEqual"})
_SAME_NUMBERS = frozenset({"Cast", "Identity", "Reshape", "ExpandDims", "Squeeze"})


class _Scale(NamedTuple):
    """Elements below `size` are made of inputs below size * factor + offset."""

    factor: int
    offset: int


_SAME = _Scale(1, 0)


class IndexRanges:
    """Upper limits of the integers in a flat graph, and what else is wanted of numbers."""

    def __init__(self, flow: ElementFlow, depth: int = 0):
        self._flow = flow
        self._nodes = flow.flat.nodes
        self._values = flow.values
        self._depth = depth

    def form(self, tensor: str) -> Form:
        """What the numbers of `tensor` have to be like; the smallest size that they index."""
        if op_of(tensor) not in self._nodes:  # nothing reads it
            return Form()
        wanted = list(self._all_wanted(tensor))
        names = {form.name for form in wanted}
        limit = min((form.limit for form in wanted if form.limit), default=None)
        is_real = self._flow.properties.dtype(tensor).startswith(("float", "bfloat", "half"))
        is_whole = not is_real or limit is not None or bool(names & (WHOLE.keys() - {""}))
        name = next((name for name in (WHOLE if is_whole else REAL) if name in names), "")
        if name == "sorted" and limit is None:
            rows = self._flow.properties.shape(tensor) or (2,)
            limit = max(rows[0] // 2, 1)
        return Form(name, INTEGER_LIMIT if is_whole and limit is None else limit)

    def _all_wanted(self, tensor: str) -> Iterator[Form]:
        """What each reader of the elements of `tensor` wants of them."""
        pending = [(tensor, _SAME)]
        reached = set(pending)
        while pending:
            name, scale = pending.pop()
            for node, position in self._flow.readers.get(name, ()):
                wanted = [self._wanted(node, position)]
                if node.name in self._flow.flat.unit_of_node:
                    wanted += self._wanted_inside(node, name)
                for form in wanted:
                    limit = form.limit and form.limit * scale.factor + scale.offset
                    yield Form(form.name, limit if limit and limit > 0 else None)
                changed = self._changed(node, position, scale)
                outputs = self._flow.passed_on(node, position)
                for output in [f"{node.name}:0"] if changed else outputs:
                    following = (output, changed or scale)
                    if following not in reached:
                        reached.add(following)
                        pending.append(following)

    def _wanted_inside(self, unit: Any, tensor: str) -> Iterator[Form]:
        """What is wanted of whole numbers in the body of a loop, or of a call that stays whole."""
        if self._depth < _DEEPEST and self._bodies and "int" in self._flow.properties.dtype(tensor):
            functions, inside = self._bodies
            for number, function in enumerate(functions):
                if self._flow.flat.graph_def.node[function.unit].name == unit.name:
                    for position, name in enumerate(function.inputs):
                        if parse_input(name).tensor == tensor:
                            argument = argument_name(number, position)
                            yield from inside._all_wanted(f"{argument}:0")

    @functools.cached_property
    def _bodies(self) -> tuple[Sequence[UnitFunction], IndexRanges] | None:
        opened = unit_bodies(self._flow.flat, self._flow.properties)
        if opened is None:
            return None
        try:
            flow = ElementFlow(opened.flat, infer(opened.flat))
        except ModelError:  # of shapes that change in a loop
            return None
        return opened.functions, IndexRanges(flow, self._depth + 1)

    def _wanted(self, node: Any, position: int) -> Form:
        """What a node wants of the numbers of its input."""
        size = self._indexed_size(node, position)
        if node.op in _COMPARED and (size := self._counted_by(node.input[1 - position])):
            return Form("length", size + 1)
        last = position - sum(not name.startswith("^") for name in node.input)
        name = _FORMS.get((node.op, position), _FORMS.get((node.op, last), ""))
        if name == "length":
            axis = int(node.attr["seq_dim"].i) if node.op == "ReverseSequence" else 0
            size = _size(self._shape(node.input[0]), axis)
        if node.op == "StridedSlice" and position == 2 and not node.attr["shrink_axis_mask"].i:
            name, size = "length", self._least_sliced(node)
        if name == "size" and node.op == "TopKV2":
            size = _size(self._shape(node.input[0]), -1)
        if name == "sorted" and size is None:
            size = self._rows_wanted(f"{node.name}:0")
        return Form(name, size + 1 if size is not None and name in ("length", "size") else size)

    def _counted_by(self, tensor: str) -> int | None:
        """The numbers of a tensor that is 0, 1, 2, ..., which lengths are compared with."""
        source = self._nodes[op_of(source_of(tensor, self._nodes, _SAME_NUMBERS))]
        if source.op != "Range":
            numbers = self._values.value(tensor)
            if numbers is None or numbers.size < 2:
                return None
            if not np.array_equal(np.ravel(numbers), np.arange(numbers.size)):
                return None
        shape = self._shape(tensor)
        return max(shape, default=0) if shape is not None and min(shape, default=0) >= 0 else None

    def _rows_wanted(self, tensor: str) -> int | None:
        """How many segments what reads their sums wants."""
        sizes = (
            _size(self._flow.properties.shape(f"{node.name}:0"), 0)
            for node, _ in self._flow.readers.get(tensor, ())
            if node.op in ("Sub", "Mul", "AddV2", "SquaredDifference")
        )
        return next((size for size in sizes if size), None)

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
            return self._number(node.input[1])
        if position == 2 and node.op in ("CTCLoss", "CTCLossV2"):  # a class is the blank
            classes = _size(self._shape(node.input[0]), -1)
            return None if classes is None else classes - 1
        if position == 2 and node.op == "CropAndResize":
            return _size(self._shape(node.input[0]), 0)
        if position == 2 and node.op.startswith("SparseSegment"):
            has_size = node.op.endswith(("Grad", "GradV2", "WithNumSegments"))
            return self._number(node.input[3]) if has_size else None
        if position == 0 and node.op == "ScatterNd":
            shape = self._values.value(node.input[2])
            return None if shape is None else self._least(node.input[0], shape.tolist())
        if position != 1:
            return None
        if node.op in _INDEX_PLACES:
            return self._least(node.input[1], self._shape(node.input[0]))
        if node.op == "StridedSlice":
            return self._least_sliced(node)
        if node.op == "NthElement":
            return _size(self._shape(node.input[0]), -1)
        if node.op in _INDEX_ROWS:
            return _size(self._shape(node.input[0]), 0)
        if node.op in _INDEX_CLASSES:
            return _size(self._shape(node.input[0]), -1)
        if node.op == "GatherV2":
            axis = self._values.scalar(node.input[2])
            return _size(self._shape(node.input[0]), 0 if axis is None else axis)
        if node.op == "DynamicPartition":
            return int(node.attr["num_partitions"].i)
        if node.op.startswith("UnsortedSegment"):
            return self._number(node.input[2])
        return None

    def _least(self, places: str, shape: Shape) -> int | None:
        """The least size of the dimensions of `shape` that the last one of `places` counts."""
        counted = _size(self._shape(places), -1)
        return min(shape[:counted], default=None) if shape and counted else None

    def _least_sliced(self, node: Any) -> int | None:
        """The least size of the dimensions that a slice may cut."""
        shape, begun = self._shape(node.input[0]), self._shape(node.input[1])
        return min(shape[: begun[0]], default=None) if shape and begun else None

    def _number(self, tensor: str) -> int | None:
        """A size; where it is fed it is small."""
        source = self._nodes[op_of(source_of(tensor, self._nodes, _SAME_NUMBERS))]
        is_fed = source.op in op_types.PLACEHOLDERS
        return FED_SIZE if is_fed else self._values.scalar(tensor)

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

"""Small tensors of sizes, as straight lines in the size of the batch, or as what nobody can follow.

This is an abstract interpretation: of each element is known the line `a + b * B` on which it lies
for a batch of B entries, given by its values at two sizes of the batch, or nothing ("bent", the top
of the lattice). An op that is not in a table here makes no line of one that rises: what it makes
at two sizes says nothing of others, as a table that is looked up may hold the same for 32 and for
35 entries, and nothing else in it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.known_tensors import Known, constant_node
from graphs.building.op_outputs import attr_of
from graphs.building.same_shapes import bare
from graphs.protos import NodeDef, Shape, is_open
from rewrite.split.any_batch.open_step import LEAST_BATCH
from rewrite.split.rules.slicing import slice_entries
from rewrite.split.shape_facts import one_op

_SIZES = (*range(2, 70), *(2**power for power in range(7, 31)))
"""Batches for which lengths are computed."""
_COMPARED = frozenset("Equal Greater GreaterEqual Less LessEqual Maximum Minimum NotEqual".split())
_DIVIDED = frozenset("Div FloorDiv FloorMod Mod RealDiv TruncateDiv TruncateMod".split())
_SELECTED = frozenset({"Select", "SelectV2"})
_STRAIGHT = op_types.listed("straight")
"""Elementwise ops that make straight lines of straight lines."""
_MOVED = {
    **dict.fromkeys("Identity Pack Squeeze Unpack".split(), ()),
    **dict.fromkeys("Concat ConcatOffset Split".split(), (0,)),
    **dict.fromkeys(
        """
        Cumsum ExpandDims Gather GatherNd MirrorPad Pad PadV2 ReverseV2 Sum TensorScatterAdd
        TensorScatterSub TensorScatterUpdate Transpose
        """.split(),
        (1,),
    ),
    **dict.fromkeys("GatherV2 Roll Slice UnsortedSegmentSum".split(), (1, 2)),
    "StridedSlice": (1, 2, 3), "ScatterNd": (0, 2), "SplitV": (1, 2), "ConcatV2": (-1,),
}  # fmt: skip
"""{op that moves or adds up elements: the inputs that say which}."""
_REPEATED = {"BroadcastTo": (1,), "Fill": (0,), "Reshape": (1,), "Tile": (1,)}
"""{op that makes so many elements as an input says, all of them its others'}: how many may rise."""
_KEPT = frozenset({"BroadcastArgs", "BroadcastGradientArgs", "Range"})
"""Ops that make straight lines of straight lines; an axis is stretched at all sizes or at none."""
_AS_THE_SHORTER = frozenset(
    "DiagPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 Qr Svd".split()
)
"""Ops that make as many elements as the shorter of a matrix's rows and columns has."""
Size = Callable[[int], int]
"""A number at each size of the batch."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A small tensor whose elements go with the batch's size in a straight line, or do not.

    Attributes:
      batches: two sizes of the batch.
      one, other: the value at the first and at the second; None where it is not known.
      bent: which elements are no straight lines; broadcast to the first value's shape.
    """

    batches: tuple[int, int]
    one: np.ndarray | None
    other: np.ndarray | None
    bent: np.ndarray

    @property
    def varies(self) -> bool:
        """Whether it is, or may be, another one at another size."""
        if self.one is None or self.other is None:
            return True
        return bool(self.bent.any()) or not np.array_equal(self.one, self.other)

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Both values; of an axis with more entries in one of them a single one, if all are alike.

        A mask of ones has more of them for a larger batch, and no other ones.
        """
        assert self.one is not None and self.other is not None
        both = self.one, self.other
        if self.one.ndim != self.other.ndim or not self.one.size or not self.other.size:
            return both
        longer = [a for a, sizes in enumerate(zip(self.one.shape, self.other.shape, strict=True))
                  if len({*sizes}) > 1]  # fmt: skip
        single = tuple(slice(0, 1) if a in longer else slice(None) for a in range(self.one.ndim))
        is_alike = all((each == each[single]).all() for each in both)
        return (self.one[single], self.other[single]) if is_alike else both

    @property
    def rising(self) -> np.ndarray:
        """Which elements are others at the other size; all, of another number that aren't alike."""
        if self.one is None or self.other is None:
            return np.array(True)
        one, other = self.rows
        return np.asarray(one != other) if one.shape == other.shape else np.array(True)

    @property
    def is_as_long(self) -> bool:
        """Whether it is known to have as many elements at the other size."""
        if self.one is None or self.other is None:
            return False
        return self.one.shape == self.other.shape

    def at(self, entry: int) -> Size | None:
        """One element; None where it is not known."""
        if self.one is None or self.other is None or self.one.shape != self.other.shape:
            return None
        one, other = (each.reshape(-1)[entry].item() for each in (self.one, self.other))
        return _through(one, other, self.batches)


def bent_elements(
    node: NodeDef, inputs: Sequence[Line], result: np.ndarray, index: int, is_elementwise: bool
) -> np.ndarray:
    """Of the elements of an op's output, which may be no straight line; broadcast to its shape.

    Args:
      inputs: what it reads.
      result: one of its outputs at the first batch size.
      index: which of its outputs.
      is_elementwise: whether each element is computed of those at the same place.
    """
    if is_elementwise or node.op in _SELECTED:
        own = _together([_bent_of_straight(node, inputs), *(line.bent for line in inputs)]) > 0
        return own if _fits(own, result) else np.array(own.any())
    bent = [line.bent.any() for line in inputs]
    is_computed = all(line.one is not None for line in inputs)  # not told by a list, or by a loop
    if is_computed and any(line.varies for line in inputs) and not _is_straight(node, inputs):
        return np.array(True)
    return _moved(node, inputs, result, index) if any(bent) else np.zeros((), bool)


def _is_straight(node: NodeDef, inputs: Sequence[Line]) -> bool:
    """Whether an op that is not elementwise makes straight lines of straight lines."""
    if node.op in ("Prod", "Cumprod"):
        is_straight = inputs[0].is_as_long and int(inputs[0].rising.sum()) < 2
        return is_straight and not any(line.varies for line in inputs[1:])
    if node.op in ("Sum", "Cumsum") and inputs[0].rising.any() and not inputs[0].is_as_long:
        return False  # of n numbers n, it is n * n
    if node.op in ("Max", "Min"):  # of numbers that are always the same line
        numbers = (inputs[0].one, inputs[0].other)
        alike = [each is not None and each.size and (each == each.flat[0]).all()
                 for each in numbers]  # fmt: skip
        return all(alike) and not inputs[0].bent.any() and not inputs[1].varies
    if (told := _told(node, inputs)) is not None:
        return not any(inputs[position].varies for position in told)
    return node.op in _REPEATED or node.op in _KEPT


def _told(node: NodeDef, inputs: Sequence[Line]) -> Sequence[int] | None:
    """The inputs that say which elements go where; None of an op that does not move elements."""
    if node.op == "DynamicStitch":
        return range(len(inputs) // 2)
    told = _MOVED.get(node.op)
    return None if told is None else [position % len(inputs) for position in told]


def _together(masks: Sequence[np.ndarray]) -> np.ndarray:
    """How many masks have each element."""
    try:
        return np.sum(np.broadcast_arrays(*masks), axis=0)
    except ValueError:
        return np.array(sum(bool(mask.any()) for mask in masks))


def _fits(marks: np.ndarray, result: np.ndarray) -> bool:
    try:
        return np.broadcast_shapes(marks.shape, result.shape) == result.shape
    except ValueError:
        return False


def _bent_of_straight(node: NodeDef, inputs: Sequence[Line]) -> np.ndarray:
    """Which elements an elementwise op bends, of straight lines."""
    if node.op in _STRAIGHT and not _is_cut_off(node):
        return np.zeros((), bool)
    if node.op in _SELECTED:
        return inputs[0].rising
    if node.op in _COMPARED | _DIVIDED and len(inputs) == 2:
        return _compared_or_divided(node, *inputs)
    return _together([line.rising for line in inputs]) > (node.op == "Mul")


def _compared_or_divided(node: NodeDef, first: Line, second: Line) -> np.ndarray:
    if any(each is None or each.dtype.kind not in "iufb"
           for line in (first, second) for each in (line.one, line.other)):  # fmt: skip
        return np.array(first.varies or second.varies)
    one, one_later, other, other_later = (
        each.astype(np.float64) for line in (first, second) for each in line.rows
    )
    if one.shape != one_later.shape or other.shape != other_later.shape:
        return np.array(True)  # a number for each entry
    rises = np.asarray((one != one_later) | (other != other_later))
    before, after = first.batches
    if node.op in _COMPARED:
        slope = ((one_later - other_later) - (one - other)) / (after - before)
        least = (one - other) - slope * (before - LEAST_BATCH)
        is_above = (least > 0) & (slope >= 0) | (least < 0) & (slope <= 0)
        return rises & ~(is_above | (least == 0) & (slope == 0))
    with np.errstate(divide="ignore", invalid="ignore"):  # is it a multiple at every batch size?
        in_proportion = one * other_later == one_later * other
        if node.op == "RealDiv":
            return np.asarray((other != other_later) & ~in_proportion)
        slope = (one_later - one) / (after - before)
        by_constant = (other == other_later) & (np.mod(slope, other) == 0)
        is_multiple = (by_constant | in_proportion) & (np.mod(one, other) == 0)
    return rises & ~((other != 0) & is_multiple)


def _is_cut_off(node: NodeDef) -> bool:
    """Whether a Cast makes whole numbers of others."""
    if node.op != "Cast":
        return False
    source, target = (tf.as_dtype(attr_of(node, name).type) for name in ("SrcT", "DstT"))
    return source.is_floating and not target.is_floating


def _moved(node: NodeDef, inputs: Sequence[Line], result: np.ndarray, index: int) -> np.ndarray:
    """Where the marks go with an op that only moves or adds up elements: it is run on them."""
    told = _told(node, inputs) or _REPEATED.get(node.op)
    if told is None and node.op not in _MOVED:
        return np.array(True)
    given = []
    for position, line in enumerate(inputs):
        value = line.one
        if value is None:
            return np.array(True)
        if position not in (told or ()):
            value = np.broadcast_to(line.bent, value.shape).astype(value.dtype)
        given.append(Known(value.dtype.name, value.shape, bare(constant_node("", value))))
    _, values, _ = one_op(bare(node), tuple(given))
    made = values[index] if values else None
    return np.array(True) if made is None or made.shape != result.shape else made != 0


def is_clipped(node: NodeDef, shapes: Sequence[Shape], inputs: Sequence[Line]) -> bool:
    """Whether an op makes as many elements of an axis as the batch's size says at some sizes only.

    `x[:200]` has all entries of a batch of 32, of 35 or of 100, and not of 300.

    Args:
      shapes: of its first input, at both batch sizes.
      inputs: what it reads.
    """
    if node.op == "Range":
        lengths = _length_of_range(inputs)
    elif node.op == "StridedSlice":
        lengths = _lengths_of_slices(node, shapes, inputs)
    elif node.op in _AS_THE_SHORTER:
        lengths = _length_of_shorter(shapes, inputs)
    else:
        return False
    for length in lengths:
        first, second = inputs[0].batches
        line = _through(length(first), length(second), (first, second))
        if any(length(batch) != line(batch) for batch in _SIZES):
            return True
    return False


def _length_of_range(inputs: Sequence[Line]) -> Iterator[Size]:
    start, limit, delta = (line.at(0) for line in inputs)
    if start is None or limit is None or delta is None:
        return

    def length(batch: int) -> int:
        step = delta(batch)
        return max(math.ceil((limit(batch) - start(batch)) / step), 0) if step else 0

    yield length


def _length_of_shorter(shapes: Sequence[Shape], inputs: Sequence[Line]) -> Iterator[Size]:
    one, other = shapes
    if not is_open(one) and not is_open(other) and one and other:
        rows, columns = (_through(one[a], other[a], inputs[0].batches) for a in (-2, -1))
        yield lambda batch: min(rows(batch), columns(batch))


def _lengths_of_slices(
    node: NodeDef, shapes: Sequence[Shape], inputs: Sequence[Line]
) -> Iterator[Size]:
    """How many elements are left of each axis that is sliced and kept, where that is known."""
    one, other = shapes
    strides = inputs[3].one
    if one is None or other is None or len(one) != len(other) or strides is None:
        return
    if min((*one, *other), default=0) < 0:
        return
    for each in slice_entries(node, strides, len(one)):
        if each.axis is None or each.entry is None or each.is_shrunk:
            continue
        begin = inputs[1].at(each.entry) if each.has_begin else None
        end = inputs[2].at(each.entry) if each.has_end else None
        if (begin is None) == each.has_begin or (end is None) == each.has_end:
            continue  # it is not known
        size = _through(one[each.axis], other[each.axis], inputs[0].batches)
        yield functools.partial(_length_of_slice, size, begin, end, int(strides[each.entry]))


def _length_of_slice(
    size: Size, begin: Size | None, end: Size | None, step: int, batch: int
) -> int:
    first, last = (None if line is None else line(batch) for line in (begin, end))
    return len(range(*slice(first, last, step).indices(max(size(batch), 0))))


def _through(one: float, other: float, batches: tuple[int, int]) -> Size:
    """A straight line through what it is at both sizes."""
    before, after = batches
    return lambda batch: math.floor(one + (other - one) * (batch - before) / (after - before))

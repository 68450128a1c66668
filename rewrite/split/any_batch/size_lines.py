"""Small tensors of sizes, as straight lines in the size of the batch, or as none.

An op is followed from what it is known to make at two batch sizes. A straight line that is the same
at two sizes is so at all. What else an op makes of one that is not is no straight line, unless the
op is known to make straight lines of it: what a table holds for 32 and for 35 entries may be the
same, and nothing else in it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graphs.building.op_outputs import attr_of
from graphs.protos import NodeDef
from graphs.tensor_protos import Shape
from rewrite.split.any_batch.other_sizes import LEAST_BATCH
from rewrite.split.rules.slicing import slice_entries

_SIZES = (*range(2, 70), *(2**power for power in range(7, 31)))
"""Batches for which lengths are computed."""
_COMPARED = frozenset("Equal Greater GreaterEqual Less LessEqual Maximum Minimum NotEqual".split())
_DIVIDED = frozenset("Div FloorDiv FloorMod Mod RealDiv TruncateDiv TruncateMod".split())
_SELECTED = frozenset({"Select", "SelectV2"})
_STRAIGHT = frozenset(
    """
    Add AddN AddV2 Cast CheckNumerics Identity Neg OnesLike PreventGradient Snapshot StopGradient
    Sub ZerosLike
    """.split()
)
"""Elementwise ops that make straight lines of straight lines."""
_CHOSEN = frozenset(
    """
    Abs ArgMax ArgMin BitwiseAnd BitwiseOr BitwiseXor Bucketize Ceil ClipByValue Floor LeftShift
    LowerBound Max Min Relu Relu6 RightShift Rint Round Sign TopK TopKV2 UpperBound Where
    """.split()
)
_SHAPED = frozenset("ExpandDims Identity Reshape Squeeze".split())
_PLACED = {"GatherV2": (1, 2), "Slice": (1, 2), "StridedSlice": (1, 2, 3), "Transpose": (1,),
           "ReverseV2": (1,), "ConcatV2": (-1,), "Split": (0,), "SplitV": (2,), "Sum": (1,),
           "Mean": (1,), "Cumsum": (1,), "ConcatOffset": (0,), "Concat": (0,), "Gather": (1,),
           "GatherNd": (1,), "MirrorPad": (1,), "Pad": (1,), "PadV2": (1,), "Roll": (1, 2),
           "ScatterNd": (0, 2), "TensorScatterAdd": (1,), "TensorScatterSub": (1,),
           "TensorScatterUpdate": (1,), "UnsortedSegmentSum": (1, 2)}  # fmt: skip
"""{op that moves or adds up elements: the inputs that say which}."""
_REPEATED = frozenset("BroadcastTo Fill Pack Range Tile Unpack".split())
"""Ops whose elements are straight lines, how many there are of them aside."""
Size = Callable[[int], int]
"""A number at each size of the batch."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A small tensor whose elements go with the batch's size in a straight line, or do not.

    Attributes:
      batches: two sizes of the batch.
      one, other: the value at the first and at the second; None where it is not known.
      bent: which elements are no straight lines.
    """

    batches: tuple[int, int]
    one: np.ndarray | None
    other: np.ndarray | None
    bent: np.ndarray

    @property
    def varies(self) -> bool:
        """Whether it is, or may be, another one at the other size."""
        return self.one is None or self.other is None or not np.array_equal(self.one, self.other)

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
    def varying(self) -> np.ndarray:
        """Which elements are others at the other size; all, of another number that aren't alike."""
        if self.one is None or self.other is None:
            return np.array(True)
        one, other = self.rows
        is_alike = one.shape == other.shape
        return np.broadcast_to(one != other if is_alike else np.array(True), self.one.shape)

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
    node: NodeDef, inputs: Sequence[Line], result: np.ndarray, is_elementwise: bool
) -> np.ndarray:
    """Of the elements of an op's output, which may be no straight line; broadcast to its shape.

    Args:
      node: the op.
      inputs: what it reads.
      result: the output at the first batch size.
      is_elementwise: whether each element is computed of those at the same place.
    """
    varies = any(line.varying.any() if is_elementwise else line.varies for line in inputs)
    if (node.op in _CHOSEN or _is_cut_off(node)) and varies and not _is_one_line(node, inputs):
        return np.array(True)
    if is_elementwise or node.op in _SELECTED:
        own = _bent_of_straight(node, inputs)
        for line in inputs:
            is_fitting = _fits(line.bent, result)
            own = own | line.bent if is_fitting else np.array(own.any() or line.bent.any())
        return own if _fits(own, result) else np.array(own.any())
    is_computed = all(line.one is not None for line in inputs)  # not told by a list, or by a loop
    if is_computed and varies and not _is_straight(node, inputs):
        return np.array(True)
    if not any(line.bent.any() for line in inputs):
        return np.zeros((), bool)
    moved = _moved(node, inputs, result)
    return np.array(True) if moved is None or moved.shape != result.shape else moved


def _is_straight(node: NodeDef, inputs: Sequence[Line]) -> bool:
    """Whether an op that is not elementwise makes straight lines of straight lines."""
    if node.op in ("Prod", "Cumprod"):
        is_straight = inputs[0].is_as_long and int(inputs[0].varying.sum()) < 2
        return is_straight and not any(line.varies for line in inputs[1:])
    if node.op in ("Sum", "Mean", "Cumsum") and inputs[0].varying.any():
        return inputs[0].is_as_long and not inputs[1].varies  # of n numbers n, it is n * n
    if node.op == "DynamicStitch":
        return not any(line.varies for line in inputs[: len(inputs) // 2])
    if node.op in ("BroadcastGradientArgs", "BroadcastArgs"):
        return True  # an axis is stretched at all sizes or at none: else the op would fail
    if node.op in _PLACED:
        return not any(inputs[position].varies for position in _PLACED[node.op])
    return node.op in _SHAPED | _REPEATED | _CHOSEN


def _is_one_line(node: NodeDef, inputs: Sequence[Line]) -> bool:
    """Whether the largest or smallest is sought of numbers that are always the same line."""
    numbers = (inputs[0].one, inputs[0].other)
    alike = [each is not None and each.size and (each == each.flat[0]).all() for each in numbers]
    return node.op in ("Max", "Min") and all(alike) and not inputs[0].bent.any()


def _fits(marks: np.ndarray, result: np.ndarray) -> bool:
    try:
        return np.broadcast_shapes(marks.shape, result.shape) == result.shape
    except ValueError:
        return False


def _bent_of_straight(node: NodeDef, inputs: Sequence[Line]) -> np.ndarray:
    """Which elements an elementwise op bends, of straight lines."""
    if node.op in _STRAIGHT | _CHOSEN:
        return np.zeros((), bool)
    if node.op in _SELECTED:
        return inputs[0].varying
    if node.op in _COMPARED | _DIVIDED and len(inputs) == 2:
        return _compared_or_divided(node, *inputs)
    is_product = node.op == "Mul"
    varying = [line.varying for line in inputs]
    try:
        together = np.broadcast_arrays(*varying)
    except ValueError:
        return np.array(any(each.any() for each in varying))
    count = np.sum(together, axis=0)
    return np.asarray(count > is_product)


def _compared_or_divided(node: NodeDef, first: Line, second: Line) -> np.ndarray:
    if any(each is None or each.dtype.kind not in "iufb"
           for line in (first, second) for each in (line.one, line.other)):  # fmt: skip
        return np.array(first.varies or second.varies)
    one, one_later, other, other_later = (
        each.astype(np.float64) for line in (first, second) for each in line.rows
    )
    if one.shape != one_later.shape or other.shape != other_later.shape:
        return np.array(True)  # a number for each entry
    varies = np.asarray((one != one_later) | (other != other_later))
    before, after = first.batches
    if node.op in _COMPARED:
        slope = ((one_later - other_later) - (one - other)) / (after - before)
        least = (one - other) - slope * (before - LEAST_BATCH)
        is_above = (least > 0) & (slope >= 0) | (least < 0) & (slope <= 0)
        return varies & ~(is_above | (least == 0) & (slope == 0))
    with np.errstate(divide="ignore", invalid="ignore"):  # is it a multiple at every batch size?
        in_proportion = one * other_later == one_later * other
        if node.op == "RealDiv":
            return np.asarray((other != other_later) & ~in_proportion)
        slope = (one_later - one) / (after - before)
        by_constant = (other == other_later) & (np.mod(slope, other) == 0)
        is_multiple = (by_constant | in_proportion) & (np.mod(one, other) == 0)
    return varies & ~((other != 0) & is_multiple)


def _is_cut_off(node: NodeDef) -> bool:
    """Whether a Cast makes whole numbers of others."""
    import tensorflow as tf

    if node.op != "Cast":
        return False
    source, target = (tf.as_dtype(attr_of(node, name).type) for name in ("SrcT", "DstT"))
    return source.is_floating and not target.is_floating


def _moved(node: NodeDef, inputs: Sequence[Line], result: np.ndarray) -> np.ndarray | None:
    """The marks, where they go with an op that only moves elements; None for others."""
    marks, first = [line.bent for line in inputs], [line.one for line in inputs]
    if node.op in _SHAPED:
        return marks[0].reshape(result.shape)
    if node.op == "Pack":
        return np.stack(marks, attr_of(node, "axis").i)
    if node.op == "ConcatV2" and first[-1] is not None:
        return np.concatenate(marks[:-1], int(first[-1]))
    if node.op in ("Pad", "PadV2") and first[1] is not None:
        instead = marks[2] if len(marks) > 2 else False
        return np.pad(marks[0], first[1], constant_values=instead)
    if node.op == "Slice" and first[1] is not None:
        ends = zip(first[1].tolist(), result.shape, strict=True)
        return marks[0][tuple(slice(begin, begin + size) for begin, size in ends)]
    if marks[0].ndim != 1:
        return None
    if node.op == "GatherV2" and first[1] is not None:
        return marks[0][first[1]]
    return _strided(node, first, marks[0]) if node.op == "StridedSlice" else None


def _strided(
    node: NodeDef, values: Sequence[np.ndarray | None], marks: np.ndarray
) -> np.ndarray | None:
    spec = [None if each is None or each.size != 1 else int(each[0]) for each in values[1:]]
    begin, end, stride = spec
    if begin is None or end is None or stride is None:
        return None
    on = {name: attr_of(node, f"{name}_mask").i
          for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    if on["ellipsis"] or on["new_axis"]:
        return None
    if on["shrink_axis"]:
        return marks[begin]
    return marks[None if on["begin"] else begin : None if on["end"] else end : stride]


def is_clipped(node: NodeDef, shapes: Sequence[Shape], inputs: Sequence[Line]) -> bool:
    """Whether an op makes as many elements of an axis as the batch's size says at some sizes only.

    `x[:200]` has all entries of a batch of 32, of 35 or of 100, and not of 300.

    Args:
      node: the op.
      shapes: of its first input, at both batch sizes.
      inputs: what it reads.
    """
    if node.op == "Range":
        lengths = _length_of_range(inputs)
    elif node.op == "StridedSlice":
        lengths = _lengths_of_slices(node, shapes, inputs)
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

"""Which elements of a small tensor of sizes are no straight line in the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rewrite.split.larger_step import LEAST_BATCH
from rewrite.split.op_view import attr_of

_COMPARED = frozenset("Equal Greater GreaterEqual Less LessEqual Maximum Minimum NotEqual".split())
_DIVIDED = frozenset("Div FloorDiv FloorMod Mod RealDiv TruncateDiv TruncateMod".split())
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
           "Mean": (1,), "Cumsum": (1,), "ConcatOffset": (0,)}  # fmt: skip
"""{op that moves or adds up elements: the inputs that say which}."""
_REPEATED = frozenset("BroadcastTo Fill Pack Range Tile Unpack".split())
"""Ops whose elements are straight lines, how many there are of them aside."""


def marks_of(
    node: Any,
    values: Sequence[Sequence[np.ndarray | None]],
    marks: Sequence[np.ndarray],
    result: np.ndarray,
    batches: tuple[int, int],
    is_elementwise: bool,
) -> np.ndarray:
    """Of the elements of an op's output, which may be no straight line; broadcast to its shape.

    A straight line that is the same at two sizes is so at all. What else an op makes of one that is
    not is marked, unless the op is known to make straight lines of it: what a table holds for 32
    and for 35 entries may be the same, and nothing else in it.

    Args:
      node: the op.
      values: of each data input, at both batch sizes.
      marks: of each data input.
      result: the output at the first batch size.
      batches: both sizes.
      is_elementwise: whether each element is computed of those at the same place.
    """
    if (
        (node.op in _CHOSEN or _is_cut_off(node))
        and _varies(values)
        and not _is_one_line(node, values, marks)
    ):
        return np.array(True)
    if is_elementwise or node.op in ("Select", "SelectV2"):
        own = _bent(node, values, batches)
        for each in marks:
            own = own | each if _fits(each, result) else np.array(own.any() or each.any())
        return own if _fits(own, result) else np.array(own.any())
    is_computed = all(row[0] is not None for row in values)  # not told by a list, or by a loop
    if is_computed and _varies(values) and not _is_straight(node, values, batches):
        return np.array(True)
    if not any(each.any() for each in marks):
        return np.zeros((), bool)
    moved = _moved(node, values, marks, result)
    return np.array(True) if moved is None or moved.shape != result.shape else moved


def _is_straight(
    node: Any, values: Sequence[Sequence[np.ndarray | None]], batches: tuple[int, int]
) -> bool:
    """Whether an op that is not elementwise makes straight lines of straight lines."""
    if node.op == "Prod":
        return int(_of_batch(values[0], batches).sum()) < 2 and not _varies(values[1:])
    if node.op == "DynamicStitch":
        return not _varies(values[: len(values) // 2])
    if node.op in ("BroadcastGradientArgs", "BroadcastArgs"):
        return True  # an axis is stretched at all sizes or at none: else the op would fail
    if node.op in _PLACED:
        return not _varies([values[position] for position in _PLACED[node.op]])
    return node.op in _SHAPED | _REPEATED | _CHOSEN


def _varying(row: Sequence[np.ndarray | None]) -> np.ndarray:
    """Which elements of a value are others at the other batch size; all, of another number."""
    one, other = row
    if one is None or other is None:
        return np.array(True)
    return np.asarray(one != other) if one.shape == other.shape else np.ones(one.shape, bool)


def _of_batch(row: Sequence[np.ndarray | None], batches: tuple[int, int]) -> np.ndarray:
    """Which elements may vary with the batch: those of another length have one more, not three.

    What entries have of such a length each is a straight line, though it is a product.
    """
    one, other = row
    varying = _varying(row)
    if one is None or other is None or one.shape != other.shape:
        return varying
    return np.asarray(varying & (np.mod(other - one, batches[1] - batches[0]) == 0))


def _is_one_line(
    node: Any, values: Sequence[Sequence[np.ndarray | None]], marks: Sequence[np.ndarray]
) -> bool:
    """Whether the largest or smallest is sought of numbers that are always the same line."""
    alike = [each is not None and each.size and (each == each.flat[0]).all() for each in values[0]]
    return node.op in ("Max", "Min") and all(alike) and not marks[0].any()


def _fits(marks: np.ndarray, result: np.ndarray) -> bool:
    try:
        return np.broadcast_shapes(marks.shape, result.shape) == result.shape
    except ValueError:
        return False


def _bent(
    node: Any, values: Sequence[Sequence[np.ndarray | None]], batches: tuple[int, int]
) -> np.ndarray:
    """Which elements an op bends, of straight lines."""
    if node.op in _STRAIGHT | _CHOSEN:
        return np.zeros((), bool)
    if node.op in ("Select", "SelectV2"):
        return _varying(values[0])
    if node.op in _COMPARED | _DIVIDED and len(values) == 2:
        return _compared_or_divided(node, values, batches)
    is_product = node.op == "Mul"
    varying = [_of_batch(row, batches) if is_product else _varying(row) for row in values]
    try:
        together = np.broadcast_arrays(*varying)
    except ValueError:
        return np.array(any(each.any() for each in varying))
    count = np.sum(together, axis=0)
    return np.asarray(count > is_product)


def _compared_or_divided(
    node: Any, values: Sequence[Sequence[np.ndarray | None]], batches: tuple[int, int]
) -> np.ndarray:
    arrays = [[_numbers(each) for each in row] for row in values]
    (one, one_later), (other, other_later) = arrays
    if any(each is None for row in arrays for each in row):
        return np.array(_varies(values))
    if one.shape != one_later.shape or other.shape != other_later.shape:
        return np.array(True)  # a number for each entry
    varies = np.asarray((one != one_later) | (other != other_later))
    if node.op in _COMPARED:
        slope = ((one_later - other_later) - (one - other)) / (batches[1] - batches[0])
        least = (one - other) - slope * (batches[0] - LEAST_BATCH)
        is_above = (least > 0) & (slope >= 0) | (least < 0) & (slope <= 0)
        return varies & ~(is_above | (least == 0) & (slope == 0))
    if node.op == "RealDiv":
        return np.asarray((other != other_later) & (one * other_later != one_later * other))
    return varies & ~_divides(one, one_later, other, other_later, batches)


def _varies(values: Sequence[Sequence[np.ndarray | None]]) -> bool:
    """Whether an op reads other numbers at another batch size."""
    return any(one is None or other is None or not np.array_equal(one, other)
               for one, other in values)  # fmt: skip


def _divides(one: Any, one_later: Any, by: Any, by_later: Any, batches: tuple[int, int]) -> Any:
    """Whether a line is a multiple of another one at every batch size."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (one_later - one) / (batches[1] - batches[0])
        by_constant = (by == by_later) & (np.mod(slope, by) == 0)
        in_proportion = one * by_later == one_later * by
        return (by != 0) & (by_constant | in_proportion) & (np.mod(one, by) == 0)


def _numbers(value: np.ndarray | None) -> Any:
    return None if value is None or value.dtype.kind not in "iufb" else value.astype(np.float64)


def _is_cut_off(node: Any) -> bool:
    """Whether a Cast makes whole numbers of others."""
    import tensorflow as tf

    if node.op != "Cast":
        return False
    source, target = (tf.as_dtype(attr_of(node, name).type) for name in ("SrcT", "DstT"))
    return source.is_floating and not target.is_floating


def _moved(
    node: Any,
    values: Sequence[Sequence[np.ndarray | None]],
    marks: Sequence[np.ndarray],
    result: np.ndarray,
) -> np.ndarray | None:
    """The marks, where they go with an op that only moves elements; None for others."""
    if node.op in _SHAPED:
        return marks[0].reshape(result.shape)
    if node.op == "Pack":
        return np.stack(marks, attr_of(node, "axis").i)
    first = [each[0] for each in values]
    if node.op == "ConcatV2" and first[-1] is not None:
        return np.concatenate(marks[:-1], int(first[-1]))
    if node.op == "GatherV2" and marks[0].ndim == 1 and first[1] is not None:
        return marks[0][first[1]]
    if node.op == "Slice" and marks[0].ndim == 1 and first[1] is not None:
        begin = int(first[1][0])
        return marks[0][begin : begin + result.size]
    if node.op == "StridedSlice" and marks[0].ndim == 1:
        return _strided(node, first, marks[0])
    return None


def _strided(node: Any, values: Sequence[np.ndarray | None], marks: np.ndarray) -> Any:
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

"""Which elements of a small tensor of sizes are no straight line in the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rewrite.split.op_view import attr_of

_COMPARED = frozenset("Equal Greater GreaterEqual Less LessEqual Maximum Minimum NotEqual".split())
_DIVIDED = frozenset("Div FloorDiv FloorMod Mod TruncateDiv TruncateMod".split())
_CHOSEN = frozenset(
    """
    Abs ArgMax ArgMin BitwiseAnd BitwiseOr BitwiseXor Bucketize Ceil ClipByValue Floor LeftShift
    LowerBound Max Min Relu Relu6 RightShift Rint Round Sign TopK TopKV2 UpperBound Where
    """.split()
)
_SHAPED = frozenset("ExpandDims Identity Reshape Squeeze".split())
_LEAST = 2
"""The fewest entries that a split batch has."""


def marks_of(
    node: Any,
    values: Sequence[Sequence[np.ndarray | None]],
    marks: Sequence[np.ndarray],
    result: np.ndarray,
    batches: tuple[int, int],
    is_elementwise: bool,
) -> np.ndarray:
    """Of the elements of an op's output, which may be no straight line; broadcast to its shape.

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
    if not any(each.any() for each in marks):
        return np.zeros((), bool)
    moved = _moved(node, values, marks, result)
    return np.array(True) if moved is None or moved.shape != result.shape else moved


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
    arrays = [[_numbers(each) for each in row] for row in values]
    if any(each is None for row in arrays for each in row):
        return np.zeros((), bool)
    if node.op not in _COMPARED | _DIVIDED or len(arrays) != 2:
        return np.zeros((), bool)
    (one, one_later), (other, other_later) = arrays
    if one.shape != one_later.shape or other.shape != other_later.shape:
        return np.array(True)  # a number for each entry
    varies = np.asarray((one != one_later) | (other != other_later))
    if node.op in _COMPARED:
        slope = ((one_later - other_later) - (one - other)) / (batches[1] - batches[0])
        least = (one - other) - slope * (batches[0] - _LEAST)
        is_above = (least > 0) & (slope >= 0) | (least < 0) & (slope <= 0)
        return varies & ~(is_above | (least == 0) & (slope == 0))
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

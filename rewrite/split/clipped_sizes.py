"""Slices and ranges whose length is a straight line in the batch's size at some sizes only.

`x[:200]` has all entries of a batch of 32, of 35 or of 100, and not of 300.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rewrite.split.op_view import Shape
from rewrite.split.rules.slicing import slice_entries

_SIZES = (*range(2, 70), *(2**power for power in range(7, 31)))
"""Batches for which lengths are computed."""
Line = Callable[[int], int]


def is_clipped(
    node: Any,
    shapes: Sequence[Shape],
    values: Sequence[Sequence[np.ndarray | None]],
    batches: tuple[int, int],
) -> bool:
    """Whether an op makes as many elements of an axis as the batch's size says at some sizes only.

    Args:
      node: the op.
      shapes: of its first input, at both batch sizes.
      values: of each data input, at both batch sizes.
      batches: both sizes.
    """
    if node.op == "Range":
        return _is_clipped_range(values, batches)
    one, other = shapes
    if node.op != "StridedSlice" or one is None or other is None or len(one) != len(other):
        return False
    if min((*one, *other), default=0) < 0:
        return False
    return any(
        _is_bent(_length_of(size, begin, end, step), batches)
        for size, begin, end, step in _taken(
            node, list(zip(one, other, strict=True)), values, batches
        )
    )


def _is_clipped_range(
    values: Sequence[Sequence[np.ndarray | None]], batches: tuple[int, int]
) -> bool:
    start, limit, delta = (_line(row, 0, batches) for row in values)
    if start is None or limit is None or delta is None:
        return False

    def length(batch: int) -> int:
        step = delta(batch)
        return max(math.ceil((limit(batch) - start(batch)) / step), 0) if step else 0

    return _is_bent(length, batches)


def _taken(
    node: Any,
    sizes: Sequence[tuple[int, int]],
    values: Sequence[Sequence[np.ndarray | None]],
    batches: tuple[int, int],
) -> list[tuple[Line, Line | None, Line | None, int]]:
    """Of each axis that is sliced and kept: its size, where that begins and ends, and the step."""
    strides = values[3][0]
    found: list[tuple[Line, Line | None, Line | None, int]] = []
    if strides is None:
        return found
    for each in slice_entries(node, strides, len(sizes)):
        if each.axis is None or each.entry is None or each.is_shrunk:
            continue
        begin, end = (
            _line(values[position], each.entry, batches) if counts else None
            for position, counts in ((1, each.has_begin), (2, each.has_end))
        )
        if (begin is None) == each.has_begin or (end is None) == each.has_end:
            continue  # it is not known
        size = _through(*sizes[each.axis], batches)
        found.append((size, begin, end, int(strides[each.entry])))
    return found


def _length_of(size: Line, begin: Line | None, end: Line | None, step: int) -> Line:
    def length(batch: int) -> int:
        first, last = (None if line is None else line(batch) for line in (begin, end))
        return len(range(*slice(first, last, step).indices(max(size(batch), 0))))

    return length


def _line(row: Sequence[np.ndarray | None], entry: int, batches: tuple[int, int]) -> Line | None:
    """An element of a value; None where it is not known."""
    one, other = row
    if one is None or other is None or one.shape != other.shape:
        return None
    return _through(one.reshape(-1)[entry].item(), other.reshape(-1)[entry].item(), batches)


def _through(one: float, other: float, batches: tuple[int, int]) -> Line:
    """A straight line through what it is at both sizes."""
    before, after = batches
    return lambda batch: math.floor(one + (other - one) * (batch - before) / (after - before))


def _is_bent(length: Line, batches: tuple[int, int]) -> bool:
    """Whether a length is no straight line."""
    line = _through(length(batches[0]), length(batches[1]), batches)
    return any(length(batch) != line(batch) for batch in _SIZES)

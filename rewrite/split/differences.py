"""How far two arrays are apart, looked at a part at a time: in float64 they are larger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

_CHUNK = 2**22


def difference(
    whole: np.ndarray, other: np.ndarray, tolerance: float, parts: Sequence[np.ndarray]
) -> str:
    """How two arrays differ; "" where they don't.

    Args:
      whole: as it should be.
      other: what the parts are together.
      tolerance: how far floats may be apart, in the largest value of `whole` or `parts`.
      parts: what rounding errors come from, beside `whole`.
    """
    if whole.shape != other.shape:
        return f"its shape is {other.shape}, wanted {whole.shape}"
    if not _is_float(whole):
        return "" if np.array_equal(whole, other) else "its values differ"
    scale = max(largest(array) for array in (whole, *parts))
    most = _floats_apart(whole, other)
    if most <= tolerance * scale:
        return ""
    return f"it differs by {most:.3g}, where values are up to {scale:.3g}"


def largest(array: np.ndarray) -> float:
    """The largest finite |value|; 0 for what is no float."""
    if not _is_float(array):
        return 0.0
    finite = (np.abs(chunk[np.isfinite(chunk)]) for chunk in _chunks(array))
    return max((float(values.max()) for values in finite if values.size), default=0.0)


def most_apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |difference|; infinite for another shape or type, or other whole numbers."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if not _is_float(one):
        return 0.0 if np.array_equal(one, other) else math.inf
    return _floats_apart(one, other)


def _is_float(array: np.ndarray) -> bool:
    """Whether it holds floats, numpy's own ones or others: it knows no bfloat16."""
    dtype = array.dtype
    return dtype.kind not in "biuSUO" and dtype.names is None


def _floats_apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |difference|; the same infinity or NaN has none."""
    most = 0.0
    for mine, its in zip(_chunks(one), _chunks(other), strict=True):
        apart = ~((mine == its) | (np.isnan(mine) & np.isnan(its)))
        if apart.any():
            there = float(np.max(np.abs(mine[apart] - its[apart])))
            most = math.inf if math.isnan(there) else max(most, there)
    return most


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in float64, not all at once."""
    flat = array.reshape(-1)
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    for begin in range(0, len(flat), _CHUNK):
        yield flat[begin : begin + _CHUNK].astype(kind)

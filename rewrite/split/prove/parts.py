"""Cuts, joins, combines and compares arrays as the parts of a split tensor, with nothing but numpy.

The proofs use this and nothing of `build_step`, so that both can't have the same mistake. Arrays
are compared a part at a time: in float64 they are larger.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rewrite.split.states import Partial, Sharded, State

_COMBINE = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "all": np.logical_and,
    "any": np.logical_or,
}
_CHUNK = 2**22


def cut(array: np.ndarray, state: Sharded, sizes: Sequence[int]) -> list[np.ndarray]:
    """The parts of a tensor, one per shard.

    Args:
      array: the whole tensor.
      state: how it is cut.
      sizes: entries of the batch in each shard.
    """
    before, after = array.shape[: state.axis], array.shape[state.axis + 1 :]
    apart = array.reshape(*before, state.outer, sum(sizes), state.inner, *after)
    ends = list(itertools.accumulate(sizes))[:-1]
    parts = np.split(apart, ends, axis=state.axis + 1)
    return [
        part.reshape(*before, state.size(size), *after)
        for part, size in zip(parts, sizes, strict=True)
    ]


def join(parts: Sequence[np.ndarray], state: Sharded, sizes: Sequence[int]) -> np.ndarray:
    """The whole tensor of its parts.

    Raises:
      ValueError: a part doesn't have the shape of its shard.
    """
    shapes = [part.shape for part in parts]
    before, after = shapes[0][: state.axis], shapes[0][state.axis + 1 :]
    wanted = [(*before, state.size(size), *after) for size in sizes]
    if shapes != wanted:
        raise ValueError(f"the parts have the shapes {shapes}, wanted {wanted}")
    apart = [
        part.reshape(*before, state.outer, size, state.inner, *after)
        for part, size in zip(parts, sizes, strict=True)
    ]
    whole = np.concatenate(apart, axis=state.axis + 1)
    return whole.reshape(*before, state.size(sum(sizes)), *after)


def combined(terms: Sequence[np.ndarray], combine: str) -> np.ndarray:
    """What terms combine to.

    Raises:
      ValueError: the terms have different shapes.
    """
    if len({term.shape for term in terms}) > 1:
        raise ValueError(f"the terms have the shapes {[term.shape for term in terms]}")
    return functools.reduce(_COMBINE[combine], terms)


def together(
    parts: Sequence[np.ndarray], state: State, sizes: Sequence[int], is_mean: bool
) -> Sequence[np.ndarray]:
    """What must be equal to the whole tensor: each of its copies, or what is made of all parts.

    Args:
      parts: one for each shard.
      state: what they are of the whole.
      sizes: entries of the batch in each shard.
      is_mean: whether terms are weighted by their part of the batch.

    Raises:
      ValueError: a part has another shape than it should have.
    """
    if isinstance(state, Sharded):
        return [join(parts, state, sizes)]
    if isinstance(state, Partial):
        if is_mean:
            share = [size / sum(sizes) for size in sizes]
            parts = [part * each for part, each in zip(parts, share, strict=True)]
        return [combined(parts, state.combine)]
    return parts


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

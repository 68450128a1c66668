"""Cuts, joins and combines arrays as the parts of a split tensor, with nothing but numpy.

The proofs use this and nothing of `build_step`, so that both can't have the same mistake.
"""

import functools
import itertools
from collections.abc import Sequence

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


def cut(array: np.ndarray, state: Sharded, sizes: Sequence[int]) -> list[np.ndarray]:
    """The parts of a tensor, one per shard.

    Args:
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
    """The whole tensor of its parts; ValueError: a part doesn't have the shape of its shard."""
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
    """What terms combine to; ValueError: the terms have different shapes."""
    if len({term.shape for term in terms}) > 1:
        raise ValueError(f"the terms have the shapes {[term.shape for term in terms]}")
    return functools.reduce(_COMBINE[combine], terms)


def together(
    parts: Sequence[np.ndarray], state: State, sizes: Sequence[int], is_mean: bool
) -> Sequence[np.ndarray]:
    """What must be equal to the whole tensor: each of its copies, or what is made of all parts.

    Args:
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

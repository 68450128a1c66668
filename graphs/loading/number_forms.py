"""What the numbers of a made-up input are like, beside being random."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

INTEGER_LIMIT = 100
"""Integers that index nothing are below this: small enough to be sizes, counts or steps."""
FED_SIZE = 4
"""A size that is itself fed, such as the depth of a one-hot."""
Shape = tuple[int, ...]


class Form(NamedTuple):
    """Attributes: a key of WHOLE or REAL; the exclusive upper limit of whole numbers."""

    name: str = ""
    limit: int | None = None


def _lengths(limit: int, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """In the upper quarter: a loss wants no fewer frames than letters."""
    size = limit - 1
    return np.asarray(rng.integers(max(size - size // 4, min(1, size)), limit, shape))


def _sorted(limit: int, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """From 0 to limit - 1 in equal parts."""
    return (np.arange(math.prod(shape)) * limit // max(math.prod(shape), 1)).reshape(shape)


def _definite(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Symmetric and positive definite matrices, where the last two dimensions are one size."""
    numbers = np.asarray(rng.standard_normal(shape))
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return numbers
    squares = numbers @ np.swapaxes(numbers, -1, -2) / max(shape[-1], 1)
    return np.asarray(squares + np.eye(shape[-1]))


def _share(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Rows of probabilities, which sum to one."""
    weights = np.asarray(rng.uniform(0.5, 1.5, shape))
    return weights / weights.sum(-1, keepdims=True) if shape else np.ones(shape)


WHOLE: Mapping[str, Callable[[int, Shape, np.random.Generator], np.ndarray]] = {
    "order": lambda limit, shape, rng: np.arange(math.prod(shape)).reshape(shape),
    # -1, 1, 1, ...: as a shape it fits what is reshaped, whatever it is.
    "rest": lambda limit, shape, rng: 1 - 2 * np.eye(1, math.prod(shape), dtype=int).reshape(shape),
    "zeros": lambda limit, shape, rng: np.zeros(shape, int),
    "ones": lambda limit, shape, rng: np.ones(shape, int),
    "size": lambda limit, shape, rng: np.full(shape, min(FED_SIZE, limit - 1)),
    "sorted": _sorted,
    "length": _lengths,
    "": lambda limit, shape, rng: np.asarray(rng.integers(0, limit, shape)),
}
"""{form: what makes its whole numbers}; of several that are wanted, the first one counts."""
REAL: Mapping[str, Callable[[Shape, np.random.Generator], np.ndarray]] = {
    "definite": _definite,
    "share": _share,
    "positive": lambda shape, rng: np.asarray(rng.uniform(0.5, 1.5, shape)),
    "": lambda shape, rng: np.asarray(rng.standard_normal(shape)),
}
"""{form: what makes its real numbers}, likewise."""

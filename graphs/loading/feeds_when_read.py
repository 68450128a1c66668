"""Inputs that are made up only when somebody reads one: a batch for 64 GPUs fits no single machine.

Where nothing is run, as with a cluster that is only described, nobody does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from graphs.source_model import TensorSpec

MAX_ELEMENTS_AT_ONCE = 2**24
"""Of all inputs: fewer are made at once, so that what is wrong is known before a search."""


class FeedsWhenRead(Mapping[str, np.ndarray]):
    """{tensor: array} of one run, made when the first array is read."""

    def __init__(self, feeds: Sequence[TensorSpec], make: Callable[[], Mapping[str, np.ndarray]]):
        self._tensors = [spec.tensor for spec in feeds]
        self._make = make

    @functools.cached_property
    def _made(self) -> Mapping[str, np.ndarray]:
        return self._make()

    def __getitem__(self, tensor: str) -> np.ndarray:
        if tensor not in self._tensors:
            raise KeyError(tensor)
        return self._made[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __reduce__(self) -> tuple[type, tuple[dict[str, np.ndarray]]]:
        return dict, (dict(self),)


def made_when_read(
    feeds: Sequence[TensorSpec], make: Callable[[], Mapping[str, np.ndarray]]
) -> Mapping[str, np.ndarray]:
    """What `make` makes: now, or where that is large when an array is read."""
    shapes = [spec.shape for spec in feeds if spec.shape is not None]
    is_small = sum(math.prod(shape) for shape in shapes) <= MAX_ELEMENTS_AT_ONCE
    is_complete = len(shapes) == len(feeds) and all(min(s, default=0) >= 0 for s in shapes)
    return make() if is_small or not is_complete else FeedsWhenRead(feeds, make)

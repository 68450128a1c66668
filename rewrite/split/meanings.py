"""What a tensor of a split step may stand for."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from rewrite.split.states import State

Shape = tuple[int, ...]


class Meaning(NamedTuple):
    """What a tensor of the split step is of a tensor of the unsplit one.

    Each input of each op has one, and is compared with another: a tuple is made and compared in C.

    Attributes:
      tensor: "op:i" of the unsplit step.
      state: how that is cut, or what its terms combine to; None for all of it.
      shards: which of its parts this is, or which terms are combined already.
      is_apart: whether the blocks outside of the batch have a dimension of their own, at
        state.axis; state.inner is not known yet where all of it is apart.
      first_row: of numbers of rows: which row of the whole they count from.
      rows: the first row and the one behind the last that it holds; None for all of them.
      is_unweighted: whether it still has to be multiplied by its share of the batch.
    """

    tensor: str
    state: State | None = None
    shards: frozenset[int] = frozenset()
    is_apart: bool = False
    is_unweighted: bool = False
    first_row: int = 0
    rows: tuple[int, int] | None = None


Value = Meaning | np.ndarray


@dataclasses.dataclass(frozen=True)
class Whole:
    """A tensor of the unsplit step: its shape and the number of its type."""

    shape: Shape | None
    dtype: int

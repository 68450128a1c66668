"""How a variable is cut into pieces, each of which is a variable."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphs.function_library import cut_apart
from graphs.protos import DType, Tensor
from rewrite.split.states import Sharded


@dataclasses.dataclass(frozen=True)
class CutVariable:
    """A variable in pieces.

    Attributes:
      dtype: of its elements.
      shape: of the whole.
      state: how it is cut.
      names: the shared names of its pieces.
    """

    dtype: DType
    shape: tuple[int, ...]
    state: Sharded
    names: tuple[str, ...]

    @property
    def num_pieces(self) -> int:
        """How many there are."""
        return len(self.names)

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Of each piece: all are of one size."""
        axis = self.state.axis
        size = self.shape[axis] // self.num_pieces
        return (*self.shape[:axis], size, *self.shape[axis + 1 :])

    def cut(self, whole: Tensor, xp: Any = np) -> list[Tensor]:
        """The pieces of an array, or with tf.experimental.numpy those of a tensor."""
        whole = xp.reshape(whole, self.shape)
        return cut_apart(whole, self.state.axis, self.state.outer, self.num_pieces, xp)

    def joined(self, pieces: Sequence[Tensor], xp: Any = np) -> Tensor:
        """The whole of its pieces, likewise."""
        axis, outer = self.state.axis, self.state.outer
        shape = self.part_shape
        apart = [*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :]]
        whole = xp.concatenate([xp.reshape(piece, apart) for piece in pieces], axis + 1)
        return xp.reshape(whole, self.shape)

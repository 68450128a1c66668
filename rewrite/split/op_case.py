"""A split op that is proven: what it is whole, and what its copies are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rewrite.split.states import Sharded, State

Shape = tuple[int, ...] | None
_COPIES = 4  # what is read and made, whole and in parts
_MOST_WORK = 2e9
_MOST_ELEMENTS = 2**25


@dataclasses.dataclass(frozen=True)
class CaseInput:
    """A data input of a case.

    Attributes:
      shape: of the whole tensor; of the variable where it is a variable's handle.
      dtype: of the tensor or the variable.
      state: what the copies read.
      value: the whole tensor, where no run can change it.
      values_of_shards: what each copy reads instead, where the input holds sizes.
      rows: how the rows that it names count the batch, where each entry names rows of its own.
      is_handle: whether it is the handle of a variable.
      is_list: whether it is a TensorList of the rows of such a tensor.
    """

    shape: Shape
    dtype: str
    state: State
    value: np.ndarray | None = None
    values_of_shards: tuple[np.ndarray, ...] = ()
    is_handle: bool = False
    is_list: bool = False
    rows: Sharded | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What two inputs that are alike have in common."""
        values = () if self.value is None else (self.value, *self.values_of_shards)
        written = tuple((str(v.dtype), v.shape, v.tobytes()) for v in values)
        return self.shape, self.dtype, self.state, written, self.is_handle, self.is_list, self.rows


@dataclasses.dataclass(frozen=True)
class OpCase:
    """A split op: what it is whole, and what its copies are.

    Attributes:
      name: the first op of the step that is so.
      count: how many there are.
      node: the op, without inputs and name.
      copy: one of its copies, which are all alike.
      inputs: its data inputs.
      outputs: the state of each output; of a TensorList that of all its elements in one tensor.
      lists: {output that is a TensorList: the shape of an element}.
      sizes: entries of the batch in each shard.
      is_mean: whether terms are weighted by their part of the batch.
      library: the functions that it calls; None where it calls none.
      num_elements: of all whole inputs and outputs together.
      work: about how many operations it takes.
    """

    name: str
    count: int
    node: Any
    copy: Any
    inputs: tuple[CaseInput, ...]
    outputs: tuple[State, ...]
    lists: Mapping[int, Shape]
    sizes: tuple[int, ...]
    is_mean: bool
    library: Any
    num_elements: int
    work: float

    @property
    def is_heavy(self) -> bool:
        """Whether it is run in the step's own types: float64 would take too long."""
        return self.work > _MOST_WORK or self.num_elements > _MOST_ELEMENTS

    @property
    def num_bytes(self) -> int:
        """What it takes to run it whole and in parts."""
        return _COPIES * (4 if self.is_heavy else 8) * self.num_elements

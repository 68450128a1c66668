"""Some numbers of shards: what a step of any of them takes at least; see any_split.py."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, LongArray
from rewrite.split.homes import FIRST_AT_ONCE, FIRST_BLOCK_BYTES
from tfplace.bounds.copies_bound import Copies, copies_bound
from tfplace.bounds.prices import prices_of
from tfplace.bounds.step_roles import StepRoles

BLOCK_BYTES = FIRST_BLOCK_BYTES // 4
"""Tensors above FIRST_AT_ONCE may go from shard to shard in blocks of so many bytes at least: the
last block of a tensor, or one of few rows, is smaller than others."""


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """Some numbers of shards.

    Attributes:
      first, last: the least and the greatest.
      lower: the step of the greatest number up to `first` that was read.
      base: that of the least one from `last` on; of none so great, of the greatest.
      split: all that were read.
      batch: entries of the batch.
    """

    first: int
    last: int
    lower: StepRoles
    base: StepRoles
    split: Sequence[StepRoles]
    batch: int

    def cut(self) -> list[NumberRange]:
        """Two ranges."""
        middle = int(math.sqrt(self.first * self.last))
        return [
            dataclasses.replace(self, last=middle),
            dataclasses.replace(self, first=middle + 1),
        ]

    def lower_bound_seconds(self) -> float:
        """What holds for every placement of a step of so many shards."""
        base = self.base
        path, work, sums = self._path(), self._work(), self._sums()
        if not self._is_read:
            is_common = np.all([each.of_roles(base.roles) >= 0 for each in self.split], axis=0)
            path[~is_common], work[~is_common] = 0.0, 0.0
        is_allowed = np.isfinite(base.problem.op_seconds)
        path, work = (np.where(is_allowed, each, np.inf) for each in (path, work))
        graph = dataclasses.replace(base.problem.graph, tensor_bytes=self._tensor_bytes())
        step = dataclasses.replace(base.problem, graph=graph, op_seconds=path)
        copies = Copies(step, work, sums, self._is_read)
        return copies_bound(copies, base, self.lower)

    @property
    def _is_read(self) -> bool:
        """Whether this is one number, whose step was read."""
        return self.first == self.last == self.base.num_shards

    def _at_lower(self) -> FloatArray:
        """f8[R, D]: of what is whole or gathers shards, as `lower` or `base` has it, the least."""
        own = self.base.problem.op_seconds
        here = self.lower.of_roles(self.base.roles)
        seconds = np.minimum(self.lower.problem.op_seconds[here], own)
        return np.where((here >= 0)[:, None], seconds, 0.0)

    def _path(self) -> FloatArray:
        """f8[R, D]: what one copy takes at least."""
        base, of_others = self.base, self._at_lower()
        if not self._is_read:  # terms may be added one after another, or in blocks
            of_others = np.where(base.is_sum[:, None], 0.0, of_others)
        if self.last > base.num_shards:  # a copy that gathers others may work on its part besides
            of_others = np.where(base.is_copy[:, None], 0.0, of_others)
        prices = prices_of(base.roles, self.split, self.batch)
        of_copies = prices.least(self.batch // self.last)
        return np.where((base.is_copy & ~base.gathers)[:, None], of_copies, of_others)

    def _work(self) -> FloatArray:
        """f8[R, D]: what all copies of an op take at least; 0.0 of a sum's ops."""
        base, lower = self.base, self.lower
        largest = -(-self.batch // self.first)
        of_one = prices_of(base.roles, self.split, self.batch).least(largest)
        if lower.num_shards == 1:
            here = lower.of_roles(base.roles)
            unsplit = largest / self.batch * lower.most[here]
            of_one = np.where((here >= 0)[:, None], np.fmax(of_one, unsplit), of_one)
        of_others = np.where(base.is_copy, lower.num_shards, 1)[:, None] * self._at_lower()
        is_alone = (base.is_copy & ~base.gathers)[:, None]
        of_all = np.where(is_alone, self.batch / largest * of_one, of_others)
        return np.where(base.is_sum[:, None], 0.0, of_all)

    def _sums(self) -> FloatArray:
        """f8[X, D]: what the ops that add all terms of a tensor take, where all steps do so."""
        known = [each.sums for each in (self.lower, self.base)]
        if self.lower.num_shards == 1:
            known = known[1:] if self._is_read else []
        common = [name for name in self.base.sums if all(name in each for each in known)]
        least = [np.minimum.reduce([each[name] for each in known]) for name in common if known]
        return np.array(least).reshape(len(least), self.base.problem.num_devices)

    def _tensor_bytes(self) -> LongArray:
        """i8[T]: of one copy and of what is whole, at least."""
        base = self.base
        graph = base.problem.graph
        if self._is_read:
            return graph.tensor_bytes
        of_copy = base.is_copy[graph.tensor_producer]
        crosses = ~of_copy
        crosses[graph.use_tensor[base.is_sum[graph.use_op]]] = True
        is_cut = crosses & (graph.tensor_bytes > FIRST_AT_ONCE)
        sizes = np.where(is_cut, BLOCK_BYTES, graph.tensor_bytes)
        if self.last > base.num_shards:  # a tensor of a copy may be as small as you like
            sizes = np.where(of_copy, 0, sizes)
        return sizes

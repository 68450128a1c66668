"""What a copy of an op takes at least in a number of shards that was not read.

Let c(b) be what a copy takes on some device for b entries of the batch. A price is the sum of an
op's kernels, each of which takes a constant and a share of b, and no less than a launch, so

    c is nondecreasing, c(b) / b is nonincreasing, and c is convex.

Known are the prices c(e_1), c(e_2), .. of the steps that were read: the least and the greatest of a
step's copies are those of floor(B / M) and ceil(B / M) entries. For any other b then,

    c(b) >= c(e) for e <= b,    c(b) >= c(e) b / e for e >= b,
    c(b) >= the line through two neighbours (e, c(e)) at b, unless b lies between them.

A sum of ops of one device obeys all this, too. Where three prices of an op are not convex (an op
whose work grows otherwise), lines say nothing of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from tfplace.bounds.step_roles import Role, StepRoles
from tfplace.grouping.quotient import BoolArray

ROUNDING = 1e-9
"""Relative error that a price may have: lines are lowered by it, and it breaks no convexity."""


@dataclasses.dataclass(frozen=True)
class Prices:
    """Of R roles on D devices, at E numbers of entries.

    Attributes:
      entries: [E] ascending, e.
      seconds: f8[E, R, D]; nan where a step does not have the role, inf where it may not lie.
      is_convex: bool[R, D].
    """

    entries: Sequence[int]
    seconds: FloatArray
    is_convex: BoolArray

    def least(self, entries: int) -> FloatArray:
        """f8[R, D]: what one copy takes at least; 0.0 where nothing is known of it."""
        with np.errstate(invalid="ignore"):  # nan and inf come out as they should
            found = np.zeros(self.seconds.shape[1:])
            for known, seconds in zip(self.entries, self.seconds, strict=True):
                found = np.fmax(found, seconds * min(entries / known, 1.0))
            for low in range(len(self.entries) - 1):
                first, last = self.entries[low], self.entries[low + 1]
                if entries <= first or entries >= last:
                    line = self._line(low, entries)
                    found = np.fmax(found, np.where(self.is_convex, line, 0.0))
        return found

    def _line(self, low: int, entries: int) -> FloatArray:
        """f8[R, D]: at some entries, the line through a price and the next one, rounded down."""
        first, last = self.entries[low], self.entries[low + 1]
        below, above = self.seconds[low], self.seconds[low + 1]
        at = below + (above - below) * ((entries - first) / (last - first))
        return np.asarray(at - ROUNDING * (above + np.abs(at)))


def prices_of(roles: Sequence[Role], steps: Sequence[StepRoles], batch: int) -> Prices:
    """Prices of some copies' roles in all steps that have them.

    Args:
      roles: [R].
      steps: of so many numbers of shards.
      batch: entries of the batch.
    """
    known: dict[int, FloatArray] = {}
    for step in steps:
        here = step.of_roles(roles)
        for entries, of_step in (
            (batch // step.num_shards, step.least),
            (-(-batch // step.num_shards), step.most),
        ):
            seconds = np.where((here >= 0)[:, None], of_step[here], np.nan)
            if entries in known:
                seconds = np.fmin(known[entries], seconds)
            known[entries] = seconds
    read = sorted(each for each in known if each > 0)
    of_read = np.array([known[each] for each in read])
    return Prices(read, of_read, _is_convex(read, of_read))


def _is_convex(entries: Sequence[int], seconds: FloatArray) -> BoolArray:
    """bool[R, D]: no price that is known lies above what its neighbours say."""
    convex = np.ones(seconds.shape[1:], dtype=bool)
    for middle in range(1, len(entries) - 1):
        first, here, last = entries[middle - 1 : middle + 2]
        share = (here - first) / (last - first)
        with np.errstate(invalid="ignore"):
            chord = seconds[middle - 1] * (1.0 - share) + seconds[middle + 1] * share
            convex &= ~(seconds[middle] > chord * (1.0 + ROUNDING))
    return convex

"""What --shards=auto has found for one number of shards."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from tfplace.preparing.prepare import PreparedModel

if TYPE_CHECKING:
    from tfplace.choosing.find_placement import Searched


@dataclasses.dataclass(frozen=True)
class TriedShards:
    """One number of shards that --shards=auto came by, for the report.

    Attributes:
      shards: M; 1 for the step as it is.
      step_seconds: the best predicted step; None where nothing was found.
      single_seconds: the best single device's.
      reason: why it was not tried, or nothing was found, else empty.
    """

    shards: int
    step_seconds: float | None = None
    single_seconds: float | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class ShardsFound:
    """A number of shards, its problem, and what its last search has found."""

    shards: int
    prepared: PreparedModel
    searched: Searched

    @property
    def step_seconds(self) -> float:
        """The best predicted step; inf where nothing can run."""
        best = self.searched.best
        return math.inf if best is None else best.step_seconds

    def told(self) -> TriedShards:
        """The same for the report."""
        single = next(c.step_seconds for c in self.searched.baselines if c.name == "single")
        step = self.step_seconds
        reason = "" if math.isfinite(step) else "no placement was found that can run"
        return TriedShards(self.shards, _finite(step), _finite(single), reason)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None

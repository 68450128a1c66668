"""What a search over numbers of shards keeps of one number."""

from __future__ import annotations

import dataclasses
import math

from tfplace.choosing.find_placement import Searched
from tfplace.choosing.tried_shards import TriedShards
from tfplace.preparing.prepare import PreparedModel


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

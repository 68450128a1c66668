"""What a comparison says: medians, ratios with intervals, whether all computed the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.op_graph import FloatArray
from tests.rival.ways import ONE, TFPLACE
from tfplace.measurement.timing import Speedup, Timing, speedup, summarize

SAME_WITHIN = 1e-4
"""Of the first loss: how far the losses of the first steps may be apart."""
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Run:
    """What one way to train did.

    Attributes:
      losses: of its first steps.
      round_seconds: f8[rounds] the median step time of each round.
    """

    losses: Sequence[float]
    round_seconds: FloatArray


@dataclasses.dataclass(frozen=True)
class Compared:
    """One model, trained in several ways.

    Attributes:
      model: its name.
      says: what it is.
      ran: {way: what it did} of those that ran.
      failed: {way: why it did not}.
      found: what `tfplace optimize` says that it has found.
      background_share: of this machine's CPU time that others used meanwhile; None if unknown.
    """

    model: str
    says: str
    ran: Mapping[str, Run]
    failed: Mapping[str, str]
    found: str
    background_share: float | None

    def timing(self, way: str) -> Timing | None:
        """Of the rounds; None where it did not run."""
        run = self.ran.get(way)
        return None if run is None else summarize(run.round_seconds)

    def over(self, baseline: str, way: str) -> Speedup | None:
        """How much faster `way` is; None unless both ran and computed the same."""
        both = [self.ran.get(each) for each in (baseline, way)]
        if None in both or not (self.is_same(baseline) and self.is_same(way)):
            return None
        slow, fast = both
        return speedup(slow.round_seconds, fast.round_seconds, _SEED)

    def is_same(self, way: str) -> bool:
        """Whether its losses are those of one worker."""
        return self.difference(way) <= SAME_WITHIN

    def difference(self, way: str) -> float:
        """Between its losses and those of one worker, at most, as a share of the first loss."""
        if ONE not in self.ran:
            return float("inf")
        wanted, found = np.array(self.ran[ONE].losses), np.array(self.ran[way].losses)
        return float(np.max(np.abs(found - wanted)) / abs(wanted[0]))

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        ways = {}
        for way, run in self.ran.items():
            over_one, tfplace_over = self.over(ONE, way), self.over(way, TFPLACE)
            ways[way] = {
                "losses": list(run.losses),
                "loss_difference": self.difference(way),
                "round_seconds": run.round_seconds.tolist(),
                "median_seconds": summarize(run.round_seconds).median_seconds,
                "over_one_worker": over_one and dataclasses.asdict(over_one),
                "tfplace_over_it": tfplace_over and dataclasses.asdict(tfplace_over),
            }
        return {
            "model": self.model,
            "says": self.says,
            "ways": ways,
            "failed": dict(self.failed),
            "found": self.found,
            "background_share": self.background_share,
        }

"""What a row says: ratios with intervals, how far the prediction was off, how ranks agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.op_graph import FloatArray
from tfplace.measurement.timing import Speedup, Timing, speedup, summarize

WRITTEN = "written"
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Judged:
    """One model, what `tfplace optimize` made of it, and what that took.

    Attributes:
      row: the model's name.
      noise: the share of a core that a program beside it took.
      optimize_seconds: how long placing took; None where that was done before.
      report: of `tfplace optimize`, or the part of it that is kept.
      runs: {way: f8[runs] seconds of its steps}; those of all ways were made by turns.
      failed: {way: why it could not run}.
      predicted_seconds: of what was written, after the rounds' corrections.
      seconds: {stage: how long it took}.
      ranks: spearman, reliability and the like, of other placements; empty where nobody knows.
    """

    row: str
    noise: float
    optimize_seconds: float | None
    report: Mapping[str, Any]
    runs: Mapping[str, FloatArray]
    failed: Mapping[str, str]
    predicted_seconds: float
    ranks: Mapping[str, Any]
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def timing(self, way: str) -> Timing | None:
        """None where it did not run."""
        return summarize(self.runs[way]) if way in self.runs else None

    def over(self, way: str) -> Speedup | None:
        """How much faster what was written is than another way; None unless both ran."""
        if not {way, WRITTEN} <= self.runs.keys():
            return None
        return speedup(self.runs[way], self.runs[WRITTEN], _SEED)

    @property
    def slower_than(self) -> list[str]:
        """The ways that are faster than what was written, beyond noise."""
        overs = {way: self.over(way) for way in self.runs if way != WRITTEN}
        return [way for way, each in overs.items() if each is not None and each.ci95[1] < 1.0]

    @property
    def prediction_error(self) -> float | None:
        """Predicted over measured, less one."""
        timing = self.timing(WRITTEN)
        return None if timing is None else self.predicted_seconds / timing.median_seconds - 1.0

    @property
    def rank_share(self) -> float | None:
        """Spearman over the reliability of the measured ranks; None where nobody knows one."""
        spearman, most = self.ranks.get("spearman"), self.ranks.get("reliability")
        return spearman / most if spearman is not None and most else None

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        fields = dataclasses.asdict(self)
        kept = ("verdict", "verdict_sentence", "best", "split", "rounds", "seconds_by_phase")
        return {
            **fields,
            "report": {key: self.report[key] for key in kept if key in self.report},
            "runs": {way: list(map(float, each)) for way, each in self.runs.items()},
            "slower_than": self.slower_than,
            "prediction_error": self.prediction_error,
            "rank_share": self.rank_share,
        }


def from_json(fields: Mapping[str, Any]) -> Judged:
    """What `as_json` gave."""
    names = {each.name for each in dataclasses.fields(Judged)}
    known = {name: value for name, value in fields.items() if name in names}
    return Judged(**{**known, "runs": {w: np.array(each) for w, each in known["runs"].items()}})

"""report.json: what was found and what it is worth (SPEC section 4)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rewrite.verify import Verified
from tfplace.choosing.baselines import Baseline
from tfplace.measurement.timing import Timing
from tfplace.simulation.prediction import Best
from tfplace.units_text import seconds_text

SCHEMA_VERSION = 1

# A gap below this is rounding: sums in different orders.
PROVEN_GAP = 1e-6


@dataclasses.dataclass(frozen=True)
class Measured:
    """Given, best single device and placed graph, timed interleaved.

    Attributes:
      timings: {"given" | "single" | "placed": Timing, or a sentence why it could not run}.
      speedup: median(best baseline that fits) / median(placed).
      speedup_ci95: bootstrap interval of it.
      baseline: which one that is.
      devices_used: {device: {"ops": n, "seconds": t}} from a trace of the emitted model.
      through: how the runs were made: "tf.function" as a rule.
      verdict: of placed against the baseline: "faster", "slower" or "no difference seen"; empty
        where they were not compared.
      background_share: share of the machine's CPU time that went to other processes; None
        where it is not known.
      noise: sentences on what disturbed the runs.
    """

    timings: Mapping[str, Timing | str]
    speedup: float
    speedup_ci95: tuple[float, float]
    baseline: str
    devices_used: Mapping[str, Mapping[str, float]]
    through: str
    verdict: str = ""
    background_share: float | None = None
    noise: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """All that `optimize` has to say; field names are SPEC section 4's."""

    tfplace_version: str
    seed: int
    algorithm: str
    evaluator: str
    model: Mapping[str, Any]
    cluster: Mapping[str, Any]
    costs: Mapping[str, Any]
    baselines: Mapping[str, Baseline]
    best: Best
    lower_bound_seconds: float | None
    search: Mapping[str, Any]
    measured: Measured | None
    verified: Verified
    verdict: str
    verdict_sentence: str
    command: str = ""
    output_dir: str = ""
    advice: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"sentences": [], "data_parallel": None}
    )
    waiting: Sequence[Mapping[str, Any]] = ()

    @property
    def gap(self) -> float | None:
        """best / lower_bound - 1."""
        if not self.lower_bound_seconds:
            return None
        return self.best.step_seconds / self.lower_bound_seconds - 1.0

    @property
    def bound_sentence(self) -> str:
        """What the lower bound proves of the placement that was written; empty without one."""
        gap = self.gap
        if gap is None or self.lower_bound_seconds is None:
            return ""
        if gap <= PROVEN_GAP:
            return "no placement is faster: proven optimal, as the simulator counts"
        return (
            f"no placement can be faster than {seconds_text(self.lower_bound_seconds)}; this one "
            f"is within {gap_text(gap)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The object of report.json; numbers that are not finite become null."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "measured"
        }
        value = {
            "schema_version": SCHEMA_VERSION,
            **fields,
            "gap": self.gap,
            "bound_sentence": self.bound_sentence,
            "measured": None if self.measured is None else _measured_json(self.measured),
        }
        return plain(value)


def gap_text(gap: float) -> str:
    """0.0123 -> "1.2 %"; 1.5 -> "150 %"."""
    return f"{100 * gap:.2g} %" if gap < 0.995 else f"{100 * gap:.0f} %"


def _measured_json(measured: Measured) -> dict[str, Any]:
    fields = {f.name: getattr(measured, f.name) for f in dataclasses.fields(measured)}
    return {**fields.pop("timings"), **fields}


def plain(value: Any) -> Any:
    """Dataclasses, arrays and tuples as what JSON has; inf and nan as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | bool) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return plain(value.tolist())

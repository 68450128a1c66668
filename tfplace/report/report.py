"""report.json: what `optimize` did and what it is worth (the contract, section 4)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.protos import Json, JsonObject
from rewrite.verify import Verified
from tfplace.choosing.baselines import Baseline
from tfplace.choosing.device_counts import OnDevices
from tfplace.choosing.run_results import Comparison, Round
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.measurement.timing import Timing
from tfplace.preparing.written_devices import LoadingNeeds
from tfplace.report.sentences import (
    any_split_text,
    apart_text,
    bound_text,
    needed_text,
    too_short_text,
)
from tfplace.simulation.simulated import Best
from tfplace.units_text import seconds_text

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Measured(Comparison):
    """Given, best single device and placed graph, timed interleaved.

    Attributes:
      devices_used: {device: {"ops": n, "seconds": t}} from a trace of the emitted model.
    """

    devices_used: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """All that `optimize` has to say; its fields are those of the contract, section 4."""

    tfplace_version: str
    seed: int
    algorithm: str
    evaluator: str
    model: JsonObject
    cluster: JsonObject
    costs: JsonObject
    baselines: Mapping[str, Baseline]
    best: Best
    lower_bound_seconds: float | None
    search: JsonObject
    measured: Measured | None
    verified: Verified
    verdict: str
    verdict_sentence: str
    command: str = ""
    output_dir: str = ""
    loading_needs: LoadingNeeds = ""
    split: JsonObject | None = None
    any_split: JsonObject | None = None
    order: JsonObject | None = None
    sensitivity: JsonObject | None = None
    parallelism: JsonObject | None = None
    shards_tried: Sequence[TriedShards] = ()
    advice: JsonObject = dataclasses.field(default_factory=lambda: {"sentences": []})
    waiting: Sequence[JsonObject] = ()
    seconds_by_phase: Mapping[str, float] = dataclasses.field(default_factory=dict)
    by_devices: Sequence[OnDevices] = ()
    rounds: Sequence[Round] = ()

    def __repr__(self) -> str:
        return f"<tfplace.Report of {self.model.get('path', '')!r}: {self.headline}>"

    @property
    def headline(self) -> str:
        """The verdict and the predicted step in a few words."""
        where = self.cluster.get("name", "")
        return f"{self.verdict} on {where}, {seconds_text(self.best.step_seconds)} a step predicted"

    @property
    def loading_call(self) -> str:
        """The line of Python that loads what was written."""
        needs = ", start_workers=True" if self.loading_needs == "workers" else ""
        return f"tfplace.load({self.output_dir!r}{needs})"

    @property
    def gap(self) -> float | None:
        """best / lower_bound - 1; None without a bound."""
        if not self.lower_bound_seconds:
            return None
        return self.best.step_seconds / self.lower_bound_seconds - 1.0

    @property
    def bound_sentence(self) -> str:
        """What the lower bound proves of the placement that was written; empty where it proves
        next to nothing, or where what starting a step takes is more than what was predicted.
        """
        step, split = self.best.step_seconds, self.split
        if self.any_split is not None:
            of = any_split_text(self.any_split["left_whole"])
            return bound_text(step, self.any_split["lower_bound_seconds"], of)
        of = f" of the step in {split['shards']} shards" if split is not None else ""
        return bound_text(step, self.lower_bound_seconds, of)

    @property
    def needed_sentence(self) -> str:
        """How many devices are worth having; empty where real runs contradict the prediction."""
        is_contradicted = self.measured is not None and self.verdict != "placed"
        return "" if is_contradicted else needed_text(self.by_devices)

    @property
    def prediction_sentence(self) -> str:
        """Where prediction and real runs are far apart, or would be; empty where they are not."""
        predicted, name = self.best.step_seconds, self.verdict.removeprefix("kept_")
        timing = None if self.measured is None else self.measured.timings.get(name)
        if isinstance(timing, Timing):
            return apart_text(predicted, timing.median_seconds)
        return too_short_text(predicted)

    def to_json(self) -> dict[str, Json]:
        """The object of report.json; numbers that are not finite become null."""
        return {
            "schema_version": SCHEMA_VERSION,
            **plain(self),
            "gap": plain(self.gap),
            "bound_sentence": self.bound_sentence,
            "needed_sentence": self.needed_sentence,
            "prediction_sentence": self.prediction_sentence,
            "measured": None if self.measured is None else comparison_to_json(self.measured),
        }


def comparison_to_json(comparison: Comparison) -> dict[str, Json]:
    """Its fields, and each placement's timing under the placement's name."""
    fields = plain(comparison)
    return {**fields.pop("timings"), **fields}


def plain(value: Any) -> Json:
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

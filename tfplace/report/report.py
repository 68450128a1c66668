"""report.json: what `optimize` did and what it is worth (the contract, section 4)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.counted import counted
from graphs.protos import Json, JsonObject
from rewrite.verify import Verified
from tfplace.choosing.baselines import Baseline
from tfplace.choosing.data_parallel import NAME, DataParallel
from tfplace.choosing.device_counts import OnDevices
from tfplace.choosing.run_results import Comparison, Round
from tfplace.choosing.ties import TIE
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.measurement.timing import Timing
from tfplace.preparing.written_devices import LoadingNeeds
from tfplace.report.explaining.parallelism import ACCUMULATION
from tfplace.simulation.simulated import Best
from tfplace.units_text import bytes_text, seconds_text, share_text

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
    memory_plan: JsonObject | None = None
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
            left = self.any_split["left_whole"]
            besides = f", {left:,} ops left whole" if left else ""
            of = f" of the step in any number of shards{besides}"
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


# What a run's figures mean, a sentence each; none where they mean nothing.


# A gap below this is rounding: sums in different orders.
PROVEN_GAP = 1e-6

# A bound further below what was found proves nothing that is worth a sentence.
LARGEST_GAP = 1.0

FAR_APART = 2.0
"""Prediction and measurement that differ by this factor are said to."""


def bound_text(step_seconds: float, lower_bound_seconds: float | None, of: str = "") -> str:
    """What a bound proves of a step; empty where it proves next to nothing, or where what starting
    a step takes, which neither holds, is more than both. `of` says of what the placements are.
    """
    if not lower_bound_seconds or step_seconds < START_SECONDS:
        return ""
    gap = step_seconds / lower_bound_seconds - 1.0
    if gap > LARGEST_GAP:
        return ""
    if gap <= PROVEN_GAP:
        return f"no placement{of} is faster: proven optimal, as the simulator counts"
    return (
        f"no placement{of} can be faster than {seconds_text(lower_bound_seconds)}; "
        f"this one is within {gap_text(gap)}"
    )


def gap_text(gap: float) -> str:
    """0.0123 -> "1.2 %"; 1.5 -> "150 %"."""
    return f"{100 * gap:.2g} %" if gap < 0.995 else f"{100 * gap:.0f} %"


def apart_text(predicted: float, measured: float) -> str:
    """What a step measured far from its prediction means; empty where they are near."""
    ratio = measured / max(predicted, 1e-12)
    text = f"a step measured {seconds_text(measured)} where {seconds_text(predicted)} was predicted"
    if ratio >= FAR_APART:
        return (
            f"{text}: a prediction counts ops and transfers, not what TensorFlow takes to start a "
            "step and its ops, nor what else runs on this machine; go by the measured times"
        )
    if ratio <= 1.0 / FAR_APART:
        return f"{text}: ops or transfers were priced too high; go by the measured times"
    return ""


def too_short_text(predicted: float) -> str:
    """What a prediction is worth that is below what starting a step takes; empty above it."""
    if predicted >= START_SECONDS:
        return ""
    return (
        f"a step of {seconds_text(predicted)} is less than TensorFlow takes to start one (about "
        f"{seconds_text(START_SECONDS)} and more), which no prediction holds: at this size placing "
        "ops gains nothing that could be measured"
    )


def needed_text(rows: Sequence[OnDevices]) -> str:
    """How many of the devices are worth having; empty where there is no choice."""
    steps = [math.inf if row.step_seconds is None else row.step_seconds for row in rows]
    if not steps or not math.isfinite(min(steps)):
        return ""
    most = rows[-1].max_devices
    enough = next(i for i, step in enumerate(steps) if step <= min(steps) * (1.0 + TIE))
    number = rows[enough].max_devices
    if rows[enough].num_devices == 0:
        return f"the CPU alone is enough: GPUs gain less than {share_text(TIE)}"
    if number < most:
        are = "is" if number == 1 else "are"
        return f"{number} of {most} devices {are} enough: more gain less than {share_text(TIE)}"
    used = rows[enough].num_devices
    needed = f"all {most} devices" if used == most else f"{used} of {most} devices"
    before, fewer = steps[enough - 1], rows[enough - 1].max_devices
    if not math.isfinite(before):
        return f"{needed}: nothing that was found fits {fewer}"
    ratio = before / min(steps)
    return f"{needed}: the best step found on {fewer} takes {ratio:.2f} times as long"


def is_untried(reason: str) -> bool:
    """Whether a baseline's reason says that there was no time for it, not that it can't run."""
    return reason.startswith("not tried")


def plan_words(runs_again: int, on_host: int, sums: int, lists: int) -> str:
    """What a memory plan does: ops, tensors, sums and lists of gradients are counted."""
    waits = "wait on the host" if on_host > 1 else "waits on the host"
    words = [f"{counted(runs_again, 'op')} run again"] if runs_again else []
    words += [f"{counted(on_host, 'tensor')} {waits}"] if on_host else []
    words += [f"the terms of {counted(sums, 'sum')} are added one by one"] if sums else []
    words += ["gradients are used as they come"] if lists else []
    return " and ".join(words) or "no op runs again, but in another order"


def plan_text(plan: JsonObject, peak_bytes: Mapping[str, int]) -> str:
    """What is computed again, what that costs, and what it spares."""
    device = max(peak_bytes, key=lambda name: plan["peak_bytes_without"][name])
    keys = ("ops_run_again", "tensors_on_host", "sums_in_turn", "lists_in_turn")
    again = plan_words(*(plan.get(key, 0) for key in keys))  # an older report has not all
    if plan["tensors_on_host"]:
        again += f": {bytes_text(plan['bytes_on_host'])}"
    return (
        f"{again} ({share_text(plan['more_work'])} more work), so that {device} holds "
        f"{bytes_text(peak_bytes[device])} instead of "
        f"{bytes_text(plan['peak_bytes_without'][device])}"
    )


def order_text(order: JsonObject, step_seconds: float) -> str:
    """What the order edges are worth."""
    if not order["edges"]:
        return "no order was found that beats first come, first served: no edges"
    without = order["step_seconds_without"]
    if step_seconds < without:
        gain = f"{share_text(1.0 - step_seconds / without)} less than without them"
    else:
        gain = "which the memory needs"
    return f"{order['edges']:,} control edges within devices say what starts first: {gain}"


START_SECONDS = 1e-4
"""What TensorFlow takes at least to start a step and its first ops. No prediction holds it, so a
gain below it says nothing."""


def data_parallel_sentence(baselines: Mapping[str, Baseline]) -> str:
    """What plain data parallelism moves and holds, or why it can't be had; empty where it makes no
    sense.
    """
    found = baselines.get(NAME)
    if not isinstance(found, DataParallel):
        return ""
    name = f"data parallelism, shard i on device i of {found.num_shards}: "
    if not found.feasible:
        return name + found.reason
    return (
        f"{name}{counted(found.num_transfers, 'transfer')}, "
        f"{bytes_text(found.transfer_bytes)} a step, "
        f"{bytes_text(max(found.peak_bytes.values(), default=0))} on the fullest device"
    )


def advice(estimate: DataParallel | None, step_seconds: float) -> list[str]:
    """Sentences for a person; none where there is nothing that could be done.

    Args:
      estimate: plain data parallelism; None where it makes no sense.
      step_seconds: predicted, of the placement that is written.
    """
    if estimate is None or estimate.step_seconds is None:
        return []
    if estimate.step_seconds + START_SECONDS > step_seconds:
        return []
    return [
        f"plain data parallelism over {estimate.num_shards} devices is predicted to be faster: "
        f"{seconds_text(estimate.step_seconds)} a step, moving "
        f"{bytes_text(estimate.transfer_bytes)} between them; try --shards={estimate.num_shards}"
    ]


def shards_advice(parallelism: JsonObject, shards_tried: Sequence[TriedShards] = ()) -> list[str]:
    """What to do where shards share one device; nothing if the unsplit step was tried, too."""
    if parallelism["kind"] != ACCUMULATION or shards_tried:
        return []
    return [
        "all shards lie on one device, which saves no time: without --shards the step is likely to "
        "be shorter, if it fits the memory (shards one after another, --order=edges, hold less)"
    ]

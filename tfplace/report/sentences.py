"""What a run's figures mean, a sentence each; none where they mean nothing."""

import math
from collections.abc import Mapping, Sequence

from graphs.counted import counted
from graphs.protos import JsonObject
from tfplace.choosing.baselines import Baseline
from tfplace.choosing.data_parallel import NAME, DataParallel
from tfplace.choosing.device_counts import OnDevices
from tfplace.choosing.ties import TIE
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.report.explaining.parallelism import ACCUMULATION
from tfplace.units_text import bytes_text, seconds_text, share_text

# A gap below this is rounding: sums in different orders.
PROVEN_GAP = 1e-6

# A bound further below what was found proves nothing that is worth a sentence.
LARGEST_GAP = 1.0

FAR_APART = 2.0
"""Prediction and measurement that differ by this factor are said to."""


def any_split_text(left_whole: int) -> str:
    """Of what the placements are that a bound for all splits holds for.

    Args:
      left_whole: how many ops stay whole in all of them, though they could be split.
    """
    besides = f", {left_whole:,} ops left whole" if left_whole else ""
    return f" of the step in any number of shards{besides}"


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
    """What to do where shards share one device; nothing if the unsplit step was tried, too.

    Args:
      parallelism: see `parallelism_facts`.
      shards_tried: what was searched in turn.
    """
    if parallelism["kind"] != ACCUMULATION or shards_tried:
        return []
    return [
        "all shards lie on one device, which saves no time: without --shards the step is likely to "
        "be shorter, if it fits the memory (shards one after another, --order=edges, hold less)"
    ]

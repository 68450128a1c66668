"""What else a user could do with the same devices: plain data parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs.counted import counted
from tfplace.choosing.baselines import Baseline
from tfplace.choosing.data_parallel import NAME, DataParallel
from tfplace.choosing.tried_shards import TriedShards
from tfplace.report.explaining.parallelism import ACCUMULATION
from tfplace.units_text import bytes_text, seconds_text

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


def shards_advice(
    parallelism: Mapping[str, Any], shards_tried: Sequence[TriedShards] = ()
) -> list[str]:
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

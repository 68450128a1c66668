"""What a list of step times says: medians, percentiles, and a speedup with its uncertainty."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from graphs.op_graph import FloatArray

NUM_RESAMPLES = 4000


@dataclasses.dataclass(frozen=True)
class Summary:
    """Attributes: median_seconds, p10, p90: seconds; runs: how many steps were timed."""

    median_seconds: float
    p10: float
    p90: float
    runs: int


@dataclasses.dataclass(frozen=True)
class Speedup:
    """Attributes: ratio: baseline median / placed median; ci95: lowest and highest plausible."""

    ratio: float
    ci95: tuple[float, float]


def summarize(step_seconds: npt.ArrayLike) -> Summary:
    """Median and the 10th and 90th percentile of f8[runs]; outliers move none of them far.

    Raises:
      ValueError: there is no run.
    """
    seconds = np.asarray(step_seconds, dtype=np.float64)
    if seconds.size == 0:
        raise ValueError("summarizing step times: found none, wanted at least one; time a step")
    p10, median, p90 = np.percentile(seconds, [10, 50, 90])
    return Summary(float(median), float(p10), float(p90), int(seconds.size))


def speedup(baseline_seconds: FloatArray, placed_seconds: FloatArray, seed: int) -> Speedup:
    """Ratio of medians, with a 95 % interval from a paired bootstrap.

    Runs are interleaved A B A B, so run i of both saw the same load of the machine: rounds
    (pairs) are resampled, not runs. Where one has more runs, its surplus is left out of the
    interval but not of the ratio.

    Args:
      baseline_seconds: f8[runs].
      placed_seconds: f8[runs].
      seed: of the resampling.

    Raises:
      ValueError: one of them is empty.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, percentile interval.
    """
    ratio = summarize(baseline_seconds).median_seconds / summarize(placed_seconds).median_seconds
    rounds = min(len(baseline_seconds), len(placed_seconds))
    chosen = np.random.default_rng(seed).integers(0, rounds, size=(NUM_RESAMPLES, rounds))
    baseline = np.median(np.asarray(baseline_seconds)[chosen], axis=1)
    placed = np.median(np.asarray(placed_seconds)[chosen], axis=1)
    low, high = np.percentile(baseline / placed, [2.5, 97.5])
    return Speedup(float(ratio), (float(low), float(high)))

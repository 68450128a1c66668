"""Judges step times from a noisy machine: medians, a speedup with its interval, a verdict.

Runs of two graphs are interleaved A B A B, so that both see the same machine. The number of runs
is not fixed beforehand: after 10, 20, 40, … rounds one looks whether the answer is clear. Who looks
often finds a difference sooner or later where there is none, so each look may err with its share
of 5 % only (Bonferroni; Armitage, McPherson and Rowe 1969 on repeated looks).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.op_graph import FloatArray

NUM_RESAMPLES = 4000
CONFIDENCE = 0.95
FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference seen"
EQUAL_WITHIN = 0.02
"""Two graphs whose step times differ by less than this share are as good as equal."""

OUTLIER_SCORE = 3.5
"""Of the modified z-score: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993."""
_LEAST_SPREAD = 0.005  # share of the median; a quieter machine has no outliers below it
DRIFT_P_VALUE = 0.01
LEAST_DRIFT = 0.02
_LEAST_RUNS_FOR_DRIFT = 10
_MAD_OF_NORMAL = 0.6745  # median absolute deviation of a standard normal variable


@dataclasses.dataclass(frozen=True)
class Timing:
    """Measured step times of one graph.

    Attributes:
      median_seconds: their median.
      p10: their 10th percentile, in seconds.
      p90: their 90th percentile, in seconds.
      runs: how many steps were timed.
      outliers: runs far from the others, see `num_outliers`.
      drift: second half's median over the first half's, minus 1; 0 where `drift` sees none.
    """

    median_seconds: float
    p10: float
    p90: float
    runs: int
    outliers: int = 0
    drift: float = 0.0


@dataclasses.dataclass(frozen=True)
class Speedup:
    """How much faster one graph is than another."""

    ratio: float  # baseline median / placed median
    ci95: tuple[float, float]  # the lowest and the highest ratio that are plausible

    @property
    def verdict(self) -> str:
        """Whether the placed graph is FASTER or SLOWER, or NO_DIFFERENCE was seen."""
        low, high = self.ci95
        return FASTER if low > 1.0 else SLOWER if high < 1.0 else NO_DIFFERENCE

    @property
    def is_clear(self) -> bool:
        """Whether more runs would change little: a verdict, or equal within EQUAL_WITHIN."""
        low, high = self.ci95
        as_good_as_equal = low > 1.0 / (1.0 + EQUAL_WITHIN) and high < 1.0 + EQUAL_WITHIN
        return self.verdict != NO_DIFFERENCE or as_good_as_equal


def summarize(step_seconds: npt.ArrayLike) -> Timing:
    """Median and the 10th and 90th percentile of f8[runs]; outliers move none of them far.

    Outliers are not counted, and drift is not looked for.

    Raises:
      ValueError: there is no run.
    """
    seconds = np.asarray(step_seconds, dtype=np.float64)
    if seconds.size == 0:
        raise ValueError("summarizing step times: found none, wanted at least one; time a step")
    p10, median, p90 = np.percentile(seconds, [10, 50, 90])
    return Timing(float(median), float(p10), float(p90), int(seconds.size))


def looks_at(min_steps: int, max_steps: int) -> tuple[int, ...]:
    """Numbers of rounds after which one looks: min_steps, doubled until max_steps, the last."""
    looks = [min_steps]
    while looks[-1] < max_steps:
        looks.append(min(2 * looks[-1], max_steps))
    return tuple(looks)


def confidence_of_look(looks: Sequence[int]) -> float:
    """Confidence of each look, so that all together err in at most 5 % of the comparisons.

    One more look is counted where there are several: the budget may end between two of them.
    """
    num_looks = 1 if len(looks) == 1 else len(looks) + 1
    return 1.0 - (1.0 - CONFIDENCE) / num_looks


def speedup(
    baseline_seconds: FloatArray,
    placed_seconds: FloatArray,
    seed: int,
    confidence: float = CONFIDENCE,
) -> Speedup:
    """Ratio of medians, with an interval from a paired bootstrap.

    Runs are interleaved A B A B, so run i of both saw the same load of the machine: rounds
    (pairs) are resampled, not runs. Where one has more runs, its surplus is left out of the
    interval but not of the ratio. Blocks of rounds were tried and dropped: at 10 rounds their
    intervals are too short (`tfplace/docs/decisions/022-timing-and-memory.md`).

    Args:
      baseline_seconds: f8[runs].
      placed_seconds: f8[runs].
      seed: of the resampling.
      confidence: of the interval; more than 0.95 where it is one of several looks.

    Raises:
      ValueError: one of them is empty.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, percentile interval.
    """
    ratio = summarize(baseline_seconds).median_seconds / summarize(placed_seconds).median_seconds
    rounds = min(len(baseline_seconds), len(placed_seconds))
    chosen = np.random.default_rng(seed).integers(0, rounds, size=(NUM_RESAMPLES, rounds))
    baseline = np.median(np.asarray(baseline_seconds)[:rounds][chosen], axis=1)
    placed = np.median(np.asarray(placed_seconds)[:rounds][chosen], axis=1)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(baseline / placed, [tail, 100.0 - tail])
    return Speedup(float(ratio), (float(low), float(high)))


def is_precise(step_seconds: FloatArray, seed: int, confidence: float = CONFIDENCE) -> bool:
    """Whether the median of f8[runs] is known to within EQUAL_WITHIN / 2 up and down."""
    seconds = np.asarray(step_seconds)
    chosen = np.random.default_rng(seed).integers(0, len(seconds), (NUM_RESAMPLES, len(seconds)))
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(np.median(seconds[chosen], axis=1), [tail, 100.0 - tail])
    return bool(high - low <= EQUAL_WITHIN * np.median(seconds))


def num_outliers(step_seconds: npt.ArrayLike) -> int:
    """Runs of f8[runs] whose modified z-score, 0.6745 |x - median| / MAD, exceeds 3.5."""
    seconds = np.asarray(step_seconds, dtype=np.float64)
    median = np.median(seconds)
    distance = np.abs(seconds - median)
    spread = max(float(np.median(distance)), _MAD_OF_NORMAL * _LEAST_SPREAD * float(median))
    return int((_MAD_OF_NORMAL * distance > OUTLIER_SCORE * spread).sum()) if spread else 0


def drift(step_seconds: npt.ArrayLike, seed: int = 0) -> float:
    """How far the second half's median lies from the first half's, as a share; 0: no drift.

    It is one where it is at least LEAST_DRIFT and where so large a difference between halves
    comes in under 1 % of random orders of the same times (permutation test); fewer than 10
    runs show none.

    Args:
      step_seconds: f8[runs] in the order of the runs; or ratios of two graphs' times.
      seed: of the random orders.
    """
    values = np.asarray(step_seconds, dtype=np.float64)
    if values.size < _LEAST_RUNS_FOR_DRIFT:
        return 0.0
    shift = _shift(values[None])[0]
    orders = np.random.default_rng(seed).permuted(
        np.broadcast_to(values, (NUM_RESAMPLES, values.size)), axis=1
    )
    as_far = int((np.abs(_shift(orders)) >= abs(shift)).sum())
    is_random = (1 + as_far) / (1 + NUM_RESAMPLES) >= DRIFT_P_VALUE
    return 0.0 if is_random or abs(shift) < LEAST_DRIFT else float(shift)


def _shift(values: FloatArray) -> FloatArray:
    """[B] of f8[B, runs]: median of the second half over median of the first, minus 1."""
    half = values.shape[1] // 2
    first, second = np.median(values[:, :half], axis=1), np.median(values[:, half:], axis=1)
    return np.asarray(second / first - 1.0)

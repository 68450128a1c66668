"""Outcomes become rewards and advantages against a moving baseline."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Infeasible, Measurement, Outcome, Problem
from tfplace.grouping.quotient import BoolArray

# What a trial is worth to a policy: higher is better, finite whatever the outcome.


# Reward of a placement that can't run (HDP's -10), in units of the square root of the reference
# time; a step 100 times the reference is worth no more.
FAILING_REWARD = -10.0


def reference_seconds(problem: Problem) -> float:
    """The scale of rewards: each op once on its fastest device, one after the other.

    About the step time of the best single device, so that this placement's reward is about -1.
    """
    seconds = np.where(problem.allowed(), problem.op_seconds, np.inf).min(axis=1)
    total = float(seconds[np.isfinite(seconds)].sum())
    return total if total > 0.0 else 1.0


def ran(outcome: Outcome) -> bool:
    """Whether a placement ran and its time is a number."""
    return isinstance(outcome, Measurement) and 0.0 <= outcome.step_seconds < math.inf


def feasible(outcomes: Sequence[Outcome]) -> BoolArray:
    """bool[B]: which placements ran."""
    return np.array([ran(outcome) for outcome in outcomes], dtype=bool)


def reward(outcome: Outcome, reference: float, usable_bytes: FloatArray) -> float:
    """R = -sqrt(t / t_ref) of a placement that runs; -10 to -20 of one that doesn't.

    Source: -sqrt of the step time, Mirhoseini et al. 2017. Departure: time is relative to a
    reference, so that one set of hyper-parameters serves models of all sizes; it falls to -10 at
    most. A memory overflow is graded, -10 (1 + o / (o + 1)) with o the bytes above the usable ones
    relative to those, so that a policy is led back; any other failure is worth -20.

    Args:
      outcome: of a trial. A time that is not a positive number counts as a failure.
      reference: t_ref in seconds, above 0.
      usable_bytes: f8[D], memory minus reserve.
    """
    if ran(outcome):
        return max(-math.sqrt(outcome.step_seconds / reference), FAILING_REWARD)
    overflow = _bytes_above(outcome, usable_bytes) / max(float(usable_bytes.sum()), 1.0)
    grade = overflow / (overflow + 1.0) if math.isfinite(overflow) else 1.0
    return FAILING_REWARD * (1.0 + grade)


def rewards(outcomes: Sequence[Outcome], reference: float, usable_bytes: FloatArray) -> FloatArray:
    """f8[B]: the reward of each outcome."""
    return np.array([reward(outcome, reference, usable_bytes) for outcome in outcomes])


def penalised_seconds(outcome: Outcome, reference: float, usable_bytes: FloatArray) -> float:
    """Step time plus 2 s per GB above the usable bytes, 10 s at most, for rewards by difference.

    Source: Placeto's memory penalty. Where the time is not known it is 100 times the reference;
    a failure other than for memory is penalised by 10 s.

    Args:
      reference: seconds, above 0.
      usable_bytes: f8[D].
    """
    seconds = outcome.step_seconds
    if not 0.0 <= seconds <= 100.0 * reference:
        seconds = 100.0 * reference
    if isinstance(outcome, Measurement):
        return seconds
    return seconds + min(2.0 * _bytes_above(outcome, usable_bytes) / 1e9, 10.0)


def _bytes_above(outcome: Outcome, usable_bytes: FloatArray) -> float:
    """Bytes above the usable ones, of all devices; inf for other failures, or if unknown."""
    is_overflow = isinstance(outcome, Infeasible) and outcome.reason == "memory"
    if not is_overflow or len(outcome.peak_bytes) != len(usable_bytes):
        return math.inf
    peaks = np.asarray(outcome.peak_bytes, dtype=np.float64)
    return float(np.maximum(peaks - usable_bytes, 0.0).sum())


# The median of fewer is too noisy a scale: with HDP's four, placements after 1,000 trials were
# 4 % slower than over the root mean square.
_FEWEST_FOR_MEDIAN = 8


class Appraisal:
    """The rewards of one search, on its own scale, and their moving baseline."""

    def __init__(self, problem: Problem, decay: float, start: float | None = None) -> None:
        """Takes the scale from the problem; `start`, or the first batch's mean, is the baseline."""
        self.reference = reference_seconds(problem)
        self._usable = problem.usable_bytes()
        self._baseline = MovingAverage(start, decay)

    def rewards(self, outcomes: Sequence[Outcome]) -> FloatArray:
        """f8[B] of outcomes [B]."""
        return rewards(outcomes, self.reference, self._usable)

    def advantages(self, rewards: FloatArray, teaches: BoolArray | None = None) -> FloatArray:
        """A_b = (R_b − baseline) over the batch's typical |A|; the baseline then takes R in.

        Args:
          rewards: f8[B].
          teaches: bool[B], None for all: the others neither move the baseline nor count for the
            scale, and their advantage is 0, so that a batch keeps its (compiled) shape.
        """
        advantage = np.zeros(len(rewards))
        teaches = np.ones(len(rewards), dtype=bool) if teaches is None else teaches
        if not teaches.any():
            return advantage
        taught = rewards[teaches]
        updated = self._baseline.updated(taught)
        value = updated.value if self._baseline.value is None else self._baseline.value
        assert value is not None  # a baseline that has seen rewards has a value
        self._baseline = updated
        scaled = over_median if len(taught) >= _FEWEST_FOR_MEDIAN else over_root_mean_square
        advantage[teaches] = scaled(advantages(taught, value))
        return advantage

    @property
    def state(self) -> np.ndarray:
        """The baseline as one number, NaN before the first rewards."""
        value = self._baseline.value
        return np.array(np.nan if value is None else value)

    @state.setter
    def state(self, value: np.ndarray) -> None:
        number = None if np.isnan(value) else float(value)
        self._baseline = MovingAverage(number, self._baseline.decay)


@dataclasses.dataclass(frozen=True)
class MovingAverage:
    """A baseline b that follows the rewards: b ← γ·b + (1 − γ)·median(R).

    Source: Mirhoseini et al. 2017, appendix; decay 0.9 as tfplace/docs/published.md has it.
    Departure: a batch counts with its median, not its mean. Where memory is tight, a few failures
    in each batch would pull the mean so far down that all placements that run look alike.
    """

    value: float | None = None  # b; None until the first update, which sets it to median(R)
    decay: float = 0.9  # γ, 0 to 1

    def updated(self, rewards: FloatArray) -> "MovingAverage":
        """The baseline after rewards f8[B]; the same one if there are none."""
        if len(rewards) == 0:
            return self
        middle = float(np.median(rewards))
        value = (
            middle if self.value is None else self.decay * self.value + (1 - self.decay) * middle
        )
        return dataclasses.replace(self, value=value)


def advantages(rewards: FloatArray, baseline: float) -> FloatArray:
    """A_b = R_b − baseline, f8[B]."""
    return rewards - baseline


def over_root_mean_square(values: FloatArray, limit: float = 3.0) -> FloatArray:
    """Values f8[B] over their root mean square, within ±limit; kept as they are where all are 0.

    The sign stays, unlike with centring: a batch that is all worse than the baseline is all
    discouraged.
    """
    scale = float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
    return np.clip(values / scale, -limit, limit) if scale >= 1e-9 else values


def over_median(values: FloatArray, limit: float = 3.0) -> FloatArray:
    """Values f8[B] over the median |value| / 0.6745, within ±limit.

    For normal values that is the root mean square; but a few failed placements don't change it,
    and clipping keeps them from drowning the differences of the rest. Where half of the values
    are 0, the root mean square stands in.
    """
    scale = float(np.median(np.abs(values))) / 0.6745 if len(values) else 0.0
    if scale < 1e-9:
        return over_root_mean_square(values, limit)
    return np.clip(values / scale, -limit, limit)

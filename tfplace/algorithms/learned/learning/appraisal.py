"""Outcomes become rewards and advantages against a moving baseline."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned import reward
from tfplace.grouping.quotient import BoolArray

# The median of fewer is too noisy a scale: with HDP's four, placements after 1,000 trials were
# 4 % slower than over the root mean square.
_FEWEST_FOR_MEDIAN = 8


class Appraisal:
    """The rewards of one search, on its own scale, and their moving baseline."""

    def __init__(self, problem: Problem, decay: float, start: float | None = None) -> None:
        """Takes the scale from the problem.

        Args:
          problem: what is being placed.
          decay: γ of the baseline.
          start: the first baseline; None for the first batch's own mean.
        """
        self.reference = reward.reference_seconds(problem)
        self._usable = problem.usable_bytes()
        self._baseline = MovingAverage(start, decay)

    def rewards(self, outcomes: Sequence[Outcome]) -> FloatArray:
        """f8[B] of outcomes [B]."""
        return reward.rewards(outcomes, self.reference, self._usable)

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

    Attributes:
      value: b; None until the first update, which sets it to median(R).
      decay: γ, 0 to 1.
    """

    value: float | None = None
    decay: float = 0.9

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

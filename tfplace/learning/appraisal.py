"""Outcomes become rewards and advantages against a moving baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace import reward
from tfplace.learning.baseline import MovingAverage, advantages, over_median, over_root_mean_square

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

    def advantages(self, rewards: FloatArray) -> FloatArray:
        """f8[B], over their typical size; the baseline then takes the rewards in."""
        value = self._baseline.value
        self._baseline = self._baseline.updated(rewards)
        value = self._baseline.value if value is None else value
        if value is None:
            return rewards
        scaled = over_median if len(rewards) >= _FEWEST_FOR_MEDIAN else over_root_mean_square
        return scaled(advantages(rewards, value))

    @property
    def state(self) -> np.ndarray:
        """The baseline as one number, NaN before the first rewards."""
        value = self._baseline.value
        return np.array(np.nan if value is None else value)

    @state.setter
    def state(self, value: np.ndarray) -> None:
        number = None if np.isnan(value) else float(value)
        self._baseline = MovingAverage(number, self._baseline.decay)

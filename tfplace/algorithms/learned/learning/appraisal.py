"""Outcomes become rewards and advantages against a moving baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned import reward
from tfplace.algorithms.learned.learning.baseline import (
    MovingAverage,
    advantages,
    over_median,
    over_root_mean_square,
)
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

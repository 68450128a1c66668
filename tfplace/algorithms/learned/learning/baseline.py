"""What a reward is compared with: baselines and advantages."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray


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

    def updated(self, rewards: FloatArray) -> MovingAverage:
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

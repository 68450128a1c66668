"""What a reward is compared with: baselines and advantages."""

from __future__ import annotations

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray


@dataclasses.dataclass(frozen=True)
class MovingAverage:
    """A baseline b that follows the rewards: b ← γ·b + (1 − γ)·mean(R).

    Source: Mirhoseini et al. 2017, appendix; decay 0.9 as PUBLISHED.md has it.

    Attributes:
      value: b; None until the first update, which sets it to mean(R).
      decay: γ, 0 to 1.
    """

    value: float | None = None
    decay: float = 0.9

    def updated(self, rewards: FloatArray) -> MovingAverage:
        """The baseline after rewards f8[B]; the same one if there are none."""
        if len(rewards) == 0:
            return self
        mean = float(np.mean(rewards))
        value = mean if self.value is None else self.decay * self.value + (1 - self.decay) * mean
        return dataclasses.replace(self, value=value)


def advantages(rewards: FloatArray, baseline: float) -> FloatArray:
    """A_b = R_b − baseline, f8[B]."""
    return rewards - baseline


def normalised(values: FloatArray, limit: float = 3.0) -> FloatArray:
    """Values f8[B] over their root mean square (kept as they are where that is 0), within ±limit.

    The sign stays, unlike with centring: a batch that is all worse than the baseline is all
    discouraged. Clipping keeps one failed placement from drowning the differences of the rest.
    """
    scale = float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
    return np.clip(values / scale, -limit, limit) if scale > 1e-9 else values

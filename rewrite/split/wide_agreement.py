"""Says when what two runs in float64 computed counts as the same.

How far they may be apart is what the unsplit step itself is apart when its variables begin one
rounding error away: sums in another order do no other thing. A hundred times that is let pass,
since the split step has other sums in many places, and at least the last six of sixteen digits.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from rewrite.split.numpy_parts import largest, most_apart

_MORE_SUMS = 100.0
_CHAOTIC = 1e-3
_SMALLEST = 1e-300


@dataclasses.dataclass(frozen=True)
class WideAgreement:
    """How far two runs may be apart.

    Attributes:
      rounding: of the narrowest floats that are computed with: what a run is nudged by.
      floor: what is always let pass, in the largest |value| of a tensor.
      nothing: what is that small beside the largest |value| of the run is a rounding error itself.
      largest: |value| of what the run computed.
    """

    rounding: float
    floor: float
    nothing: float
    largest: float = 0.0

    def tolerance(self, value: np.ndarray, again: np.ndarray) -> float | None:
        """How far another run may be apart; None where nothing can be said.

        Args:
          value: of the unsplit step.
          again: the same of the nudged run.
        """
        noise = most_apart(value, again)
        if value.dtype.kind not in "fc":
            return 0.0 if noise == 0 else None
        if not is_finite(value):
            return None
        nothing, size = self.largest * self.nothing, largest(value)
        if size <= nothing and noise <= nothing:
            return nothing
        if not _MORE_SUMS * noise <= _CHAOTIC * size:
            return None
        return max(_MORE_SUMS * noise, self.floor * size)

    def relative(self, apart: float, value: np.ndarray) -> float:
        """A difference in the largest |value| of a tensor."""
        return apart / max(largest(value), self.nothing * self.largest, _SMALLEST)


DOUBLE = WideAgreement(2.0**-52, 1e-10, 1e-14)
NARROW = WideAgreement(2.0**-24, 1e-4, 1e-6)
"""Where some ops have no float64 kernels."""
OWN = WideAgreement(2.0**-24, 1e-3, 1e-5)
"""Where a step runs in its own types only."""


def is_finite(value: np.ndarray) -> bool:
    """Whether all floats are."""
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())

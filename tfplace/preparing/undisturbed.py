"""Which of several repeated measurements count: those the machine did not disturb."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DRIFT = 0.2
"""Share by which a step may exceed the undisturbed ones. Other work on the machine only ever adds
time, and adds more than this when it takes the core for a while."""


def steady(values: Sequence[float]) -> npt.NDArray[np.bool_]:
    """bool[n]: values within `DRIFT` of the median of the lower half.

    Args:
      values: seconds, repeated measurements of one thing, n >= 1.
    """
    found = np.asarray(values, dtype=np.float64)
    lower = np.sort(found)[: (len(found) + 1) // 2]
    return np.asarray(found <= np.median(lower) * (1.0 + DRIFT))

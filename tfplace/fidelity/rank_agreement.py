"""How well predicted step times agree with measured ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Attributes:

    spearman: rank correlation, -1 to 1; None below two placements, or where all are equal.
    median_abs_relative_error, p90_abs_relative_error: of |predicted / measured - 1|.
    """

    spearman: float | None
    median_abs_relative_error: float
    p90_abs_relative_error: float


def agreement(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> RankAgreement:
    """Compares step times f8[P] > 0.

    Raises:
      ValueError: there are none.
    """
    first, second = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if not first.size:
        raise ValueError("comparing predictions with measurements: found none, wanted at least one")
    errors = np.abs(relative_errors(first, second))
    median, p90 = np.percentile(errors, [50, 90])
    return RankAgreement(_spearman(first, second), float(median), float(p90))


def relative_errors(
    predicted: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """f8[P]: predicted / measured - 1."""
    return predicted / measured - 1.0


def _spearman(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float | None:
    """Pearson's correlation of the ranks; ties have their mean rank."""
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    scale = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / scale if scale > 0 else None

"""How well predicted step times agree with measured ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from graphs.op_graph import FloatArray


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Ranks and sizes of step times, predicted against measured.

    Attributes:
      spearman: rank correlation, -1 to 1; None below two placements, or where all are equal.
      median_abs_relative_error: median of |predicted / measured - 1|.
      p90_abs_relative_error: 90th percentile of the same.
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
    median, p90 = np.percentile(np.abs(relative_errors(first, second)), [50, 90])
    return RankAgreement(spearman(first, second), float(median), float(p90))


def relative_errors(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """f8[P]: predicted / measured - 1."""
    return predicted / measured - 1.0


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's correlation of the ranks; ties have their mean rank. None where it has no value.

    Not scipy.stats.spearmanr, which warns of equal values and of fewer than two.
    """
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    scale = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / scale if scale > 0 else None

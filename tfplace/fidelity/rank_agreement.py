"""How well predicted step times agree with measured ones."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from graphs.op_graph import FloatArray

NUM_HALVES = 50


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Ranks and sizes of step times, predicted against measured.

    Attributes:
      spearman: rank correlation, -1 to 1; None below two placements, or where all are equal.
      median_abs_relative_error: median of |predicted / measured - 1|.
      p90_abs_relative_error: 90th percentile of the same.
      reliability: of the measured ranks, 0 to 1: what Spearman's correlation with a repetition of
        the same runs would be, and so about the most that a prediction can reach; None where
        nobody knows.
    """

    spearman: float | None
    median_abs_relative_error: float
    p90_abs_relative_error: float
    reliability: float | None = None


def agreement(
    predicted: npt.ArrayLike, measured: npt.ArrayLike, runs: Sequence[FloatArray] = ()
) -> RankAgreement:
    """Compares step times f8[P] > 0.

    Args:
      predicted: of each placement.
      measured: of each placement.
      runs: f8[runs] of each placement, run by run, for the ranks' reliability.

    Raises:
      ValueError: there are none.
    """
    first, second = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if not first.size:
        raise ValueError("comparing predictions with measurements: found none, wanted at least one")
    median, p90 = np.percentile(np.abs(relative_errors(first, second)), [50, 90])
    return RankAgreement(spearman(first, second), float(median), float(p90), reliability(runs))


def reliability(runs: Sequence[FloatArray]) -> float | None:
    """How far the ranks of medians of f8[R] runs each would be the same in other runs.

    Runs of all placements are cut into two halves; r is the rank correlation of the halves'
    medians, and 2 r / (1 + r) what it would be for twice as many runs, which is how many there
    are (Spearman 1910, Brown 1910). The mean of NUM_HALVES random cuts; 0 where halves disagree;
    None below two runs or two placements.
    """
    count = min((len(each) for each in runs), default=0)
    if count < 2 or len(runs) < 2:
        return None
    every = np.array([each[:count] for each in runs])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(NUM_HALVES):
        order = rng.permutation(count)
        halves = [np.median(every[:, half], axis=1) for half in np.array_split(order, 2)]
        r = spearman(*halves)
        if r is not None:
            found.append(2.0 * max(r, 0.0) / (1.0 + max(r, 0.0)))
    return float(np.mean(found)) if found else None


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

"""A straight line through times that grow with a size, robust against outliers."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from graphs.op_graph import FloatArray

NUM_RESAMPLES = 200


@dataclasses.dataclass(frozen=True)
class LineFit:
    """seconds = fixed_seconds + size * seconds_per_unit.

    Attributes:
      fixed_seconds: at size 0, >= 0.
      seconds_per_unit: slope, >= 0.
      median_relative_residual: median of |measured - fitted| / measured.
      r_squared: share of the variance that the line explains; 1 where there is none.
      fixed_ci95: the lowest and highest plausible fixed_seconds; None where nobody has looked.
      slope_ci95: the same of seconds_per_unit.
    """

    fixed_seconds: float
    seconds_per_unit: float
    median_relative_residual: float
    r_squared: float
    fixed_ci95: tuple[float, float] | None = None
    slope_ci95: tuple[float, float] | None = None


def fit_line(sizes: npt.ArrayLike, seconds: npt.ArrayLike) -> LineFit:
    """The line of least absolute relative residuals: min sum |t_i - a - b n_i| / t_i, a, b >= 0.

    Relative, since the times span four orders of magnitude and each counts the same; absolute,
    since one disturbed size must not bend the line. Such a minimum lies at a line through two
    of the points, or, on the boundary, through one of them with a = 0 or b = 0: all are tried.

    Args:
      sizes: f8[K] >= 0, such as bytes.
      seconds: f8[K] > 0.

    Raises:
      ValueError: there is no point, or a time is not positive.

    Source: Bloomfield and Steiger, Least Absolute Deviations, 1983, section 1.3: the optimum
    interpolates as many points as there are parameters. Here with weights 1 / t_i.
    """
    x, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if t.size == 0 or x.shape != t.shape or not (t > 0).all():
        raise ValueError(
            f"fitting a line to sizes {x.tolist()} and seconds {t.tolist()}: wanted as many of "
            "the ones as of the others, at least one, and times above 0"
        )
    fixed, slope = _candidates(x, t)
    residuals = np.abs(t - fixed[:, None] - slope[:, None] * x) / t
    best = int(np.argmin(residuals.sum(axis=1)))
    fitted = fixed[best] + slope[best] * x
    variance = float(((t - t.mean()) ** 2).sum())
    unexplained = float(((t - fitted) ** 2).sum())
    return LineFit(
        float(fixed[best]),
        float(slope[best]),
        float(np.median(residuals[best])),
        1.0 - unexplained / variance if variance else 1.0,
    )


def with_intervals(fit: LineFit, rounds: Mapping[int, FloatArray]) -> LineFit:
    """The fit with the intervals that resampled rounds give it (percentile bootstrap).

    Args:
      fit: the line through the medians.
      rounds: {size: f8[R] seconds}; round i of one size ran beside round i of the others. Sizes
        whose median is not above 0 are left out, as they are of the fit.
    """
    usable = {size: each for size, each in rounds.items() if np.median(each) > 0.0}
    sizes, seconds = list(usable), np.array(list(usable.values()))
    if not sizes:
        return fit
    rng = np.random.default_rng(0)
    lines = []
    for chosen in rng.integers(0, seconds.shape[1], (NUM_RESAMPLES, seconds.shape[1])):
        medians = np.median(seconds[:, chosen], axis=1)
        seen = medians > 0.0
        if seen.any():
            line = fit_line(np.array(sizes)[seen], medians[seen])
            lines.append((line.fixed_seconds, line.seconds_per_unit))
    (low_fixed, low_slope), (high_fixed, high_slope) = np.percentile(lines, [2.5, 97.5], axis=0)
    return dataclasses.replace(
        fit,
        fixed_ci95=(float(low_fixed), float(high_fixed)),
        slope_ci95=(float(low_slope), float(high_slope)),
    )


def _candidates(x: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """f8[C] fixed seconds and slopes, none negative, of the lines that can be the best."""
    first, second = np.triu_indices(len(x), k=1)
    apart = x[first] != x[second]
    first, second = first[apart], second[apart]
    slope = (t[second] - t[first]) / (x[second] - x[first])
    fixed = t[first] - slope * x[first]
    proportional = t[x > 0] / x[x > 0]
    fixed = np.concatenate([fixed, t, np.zeros(len(proportional))])
    slope = np.concatenate([slope, np.zeros(len(t)), proportional])
    usable = (fixed >= 0) & (slope >= 0)
    return fixed[usable], slope[usable]

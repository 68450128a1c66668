"""Step times of placements over several rounds, on a machine whose speed drifts between them.

Within a round all placements are stepped in turn, so that all see the same machine. From round to
round those that are measured again tell by how much the machine has changed: with x_pr the median
log step of placement p in round r, x_pr = t_p + g_r, solved by alternating medians (median polish:
Tukey, Exploratory Data Analysis, 1977). The last round's machine counts: its g is 0.
"""

import math
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import FloatArray

POLISHES = 8
LEAST_NOISE = 0.005
"""Standard deviation of a log median, whatever the runs say."""
_SD_OF_MAD, _MEDIAN_LOSS = 1.4826, 1.2533
"""A normal variable's deviation over its MAD, and what a median's is over a mean's."""


class StepTimes:
    """Runs of placements, by any name of theirs."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, FloatArray]] = []

    def add_round(self, seconds: Mapping[str, FloatArray]) -> None:
        """Takes {placement: f8[runs]}, of placements that were stepped in turn."""
        self._rounds.append({name: np.log(runs) for name, runs in seconds.items() if len(runs)})

    @property
    def num_runs(self) -> int:
        """All of them."""
        return sum(len(runs) for each in self._rounds for runs in each.values())

    def seconds(self) -> dict[str, float]:
        """{placement: its step on the machine as it was in the last round}."""
        change = self._changes()
        return {
            name: float(np.exp(np.median(runs))) for name, runs in self._leveled(change).items()
        }

    def noise(self) -> dict[str, float]:
        """{placement: standard deviation of the log of its step}."""
        return {name: _noise(runs) for name, runs in self._leveled(self._changes()).items()}

    def _leveled(self, change: FloatArray) -> dict[str, FloatArray]:
        """{placement: f8[runs] logs of steps, all rounds}, as if all had been in the last round."""
        runs: dict[str, list[FloatArray]] = {}
        for g, each in zip(change, self._rounds, strict=True):
            for name, logs in each.items():
                runs.setdefault(name, []).append(logs - g)
        return {name: np.concatenate(parts) for name, parts in runs.items()}

    def _changes(self) -> FloatArray:
        """f8[rounds] log of how much slower the machine was than in the last round."""
        medians = [
            {name: float(np.median(logs)) for name, logs in each.items()} for each in self._rounds
        ]
        g = np.zeros(len(medians))
        for _ in range(POLISHES if len(medians) > 1 else 0):
            seen: dict[str, list[float]] = {}
            for shift, each in zip(g, medians, strict=True):
                for name, x in each.items():
                    seen.setdefault(name, []).append(x - shift)
            t = {name: float(np.median(xs)) for name, xs in seen.items() if len(xs) > 1}
            for r, each in enumerate(medians):
                if common := [x - t[name] for name, x in each.items() if name in t]:
                    g[r] = np.median(common)
            g = g - g[-1]
        return g


def _noise(logs: FloatArray) -> float:
    spread = _SD_OF_MAD * float(np.median(np.abs(logs - np.median(logs))))
    return noise_of_median(spread, len(logs))


def noise_of_median(spread: float, num_runs: int) -> float:
    """The standard deviation of a median of so many log steps, of which each has `spread`."""
    return max(_MEDIAN_LOSS * spread / math.sqrt(num_runs), LEAST_NOISE)

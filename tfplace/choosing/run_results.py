"""What real runs tell: timed placements, comparisons, corrections of the figures of a cluster."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.machine_numbers import NORMAL_95
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.choosing.forward_model import ForwardModel
from tfplace.measurement.timing import Timing

PLACED = "placed"


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """One placement of a round."""

    name: str  # how it was found
    predicted_seconds: float  # by the simulator, before the round corrected it
    measured_seconds: float | None  # the median of its runs; None where it could not run


@dataclasses.dataclass(frozen=True)
class Tried(MeasuredStep):
    """A placement that real runs decided about, before the winner was compared with the others."""

    why: str  # it won or lost


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Measured step times of several placements of one run.

    Attributes:
      timings: {name: Timing, or a sentence why it could not run}.
      baseline: the faster of given and single; empty where neither ran, or placed did not.
      speedup: median(baseline) / median(placed); 1 where there is no baseline.
      speedup_ci95: bootstrap interval, wide enough for all looks at the runs (see `timing`).
      through: "tf.function" or "session".
      verdict: of placed against the baseline: "faster", "slower" or "no difference seen";
        empty where there is no baseline.
      background_share: share of this machine's CPU time that other processes took; None where
        it is not known.
      noise: sentences on what disturbed the runs.
      tried: the best few placements found, timed to choose the one that is `placed` here.
      same_as: {name: an earlier one that is the same placement}; both were timed as one.
    """

    timings: Mapping[str, Timing | str]
    baseline: str
    speedup: float
    speedup_ci95: tuple[float, float]
    through: str
    verdict: str = ""
    background_share: float | None = None
    noise: Sequence[str] = ()
    tried: Sequence[Tried] = ()
    same_as: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_with_itself(self) -> bool:
        """Whether the baseline and what was placed are one placement, which was timed once."""
        first = self.same_as.get(self.baseline, self.baseline)
        return bool(first) and self.same_as.get(PLACED) == first


LEAST_MISS = 0.03


@dataclasses.dataclass(frozen=True)
class Corrections:
    """A machine as real runs have shown it."""

    model: ForwardModel  # predicts
    theta: FloatArray  # f8[K] the most plausible machine
    covariance: FloatArray  # f8[K, K] how well that is known
    missed: float = LEAST_MISS  # share by which it misses steps that were measured

    @classmethod
    def unknown(cls, model: ForwardModel) -> "Corrections":
        """Before anything is measured."""
        return cls(model, model.as_taken, model.covariance)

    @property
    def problem(self) -> Problem:
        """The problem on this machine."""
        return self.model.on(self.theta)

    def corrected(self, problem: Problem) -> Problem:
        """Another problem of this machine."""
        return self.model.corrected(problem, self.theta)

    def seconds(self, placements: IntArray) -> FloatArray:
        """f8[P] predicted steps of i4[P, N]."""
        return self.model.seconds(self.theta, placements)

    def drawn(self, rng: np.random.Generator) -> FloatArray:
        """θ of another plausible machine: a Thompson sample."""
        values, vectors = np.linalg.eigh(self.covariance)
        normal = rng.standard_normal(len(values)) * np.sqrt(np.maximum(values, 0.0))
        return np.maximum(self.theta + vectors @ normal, self.model.least)

    def values(self) -> Mapping[str, tuple[float, float, float]]:
        """{number: value and its 95 % interval}; factors, or seconds as the name says."""
        half = NORMAL_95 * np.sqrt(np.diag(self.covariance))
        low = np.maximum(self.theta - half, self.model.least)
        rows = zip(self.model.numbers, self.theta, low, self.theta + half, strict=True)
        return {
            number.name: (number.value(float(t)), number.value(float(a)), number.value(float(b)))
            for number, t, a, b in rows
        }


@dataclasses.dataclass(frozen=True)
class Round:
    """What was measured, and what the simulator was corrected by then.

    Attributes:
      measured: side by side.
      corrected: {number: its value, and the lowest and highest that are plausible}; see
        `corrections`.
    """

    measured: Sequence[MeasuredStep]
    corrected: Mapping[str, tuple[float, float, float]]

"""What a trial is worth to a policy: higher is better, finite whatever the outcome."""

import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Infeasible, Measurement, Outcome
from graphs.problem import Problem
from tfplace.grouping.quotient import BoolArray

# Reward of a placement that can't run (HDP's -10), in units of the square root of the reference
# time; a step 100 times the reference is worth no more.
FAILING_REWARD = -10.0


def reference_seconds(problem: Problem) -> float:
    """The scale of rewards: each op once on its fastest device, one after the other.

    About the step time of the best single device, so that this placement's reward is about -1.
    """
    seconds = np.where(problem.allowed(), problem.op_seconds, np.inf).min(axis=1)
    total = float(seconds[np.isfinite(seconds)].sum())
    return total if total > 0.0 else 1.0


def ran(outcome: Outcome) -> bool:
    """Whether a placement ran and its time is a number."""
    return isinstance(outcome, Measurement) and 0.0 <= outcome.step_seconds < math.inf


def feasible(outcomes: Sequence[Outcome]) -> BoolArray:
    """bool[B]: which placements ran."""
    return np.array([ran(outcome) for outcome in outcomes], dtype=bool)


def reward(outcome: Outcome, reference: float, usable_bytes: FloatArray) -> float:
    """R = -sqrt(t / t_ref) of a placement that runs; -10 to -20 of one that doesn't.

    Source: -sqrt of the step time, Mirhoseini et al. 2017. Departure: time is relative to a
    reference, so that one set of hyper-parameters serves models of all sizes; it falls to -10 at
    most. A memory overflow is graded, -10 (1 + o / (o + 1)) with o the bytes above the usable ones
    relative to those, so that a policy is led back; any other failure is worth -20.

    Args:
      outcome: of a trial. A time that is not a positive number counts as a failure.
      reference: t_ref in seconds, above 0.
      usable_bytes: f8[D], memory minus reserve.
    """
    if ran(outcome):
        return max(-math.sqrt(outcome.step_seconds / reference), FAILING_REWARD)
    overflow = _bytes_above(outcome, usable_bytes) / max(float(usable_bytes.sum()), 1.0)
    grade = overflow / (overflow + 1.0) if math.isfinite(overflow) else 1.0
    return FAILING_REWARD * (1.0 + grade)


def rewards(outcomes: Sequence[Outcome], reference: float, usable_bytes: FloatArray) -> FloatArray:
    """f8[B]: the reward of each outcome."""
    return np.array([reward(outcome, reference, usable_bytes) for outcome in outcomes])


def penalised_seconds(outcome: Outcome, reference: float, usable_bytes: FloatArray) -> float:
    """Step time plus 2 s per GB above the usable bytes, 10 s at most, for rewards by difference.

    Source: Placeto's memory penalty. Where the time is not known it is 100 times the reference;
    a failure other than for memory is penalised by 10 s.

    Args:
      outcome: of a trial.
      reference: seconds, above 0.
      usable_bytes: f8[D].
    """
    seconds = outcome.step_seconds
    if not 0.0 <= seconds <= 100.0 * reference:
        seconds = 100.0 * reference
    if isinstance(outcome, Measurement):
        return seconds
    return seconds + min(2.0 * _bytes_above(outcome, usable_bytes) / 1e9, 10.0)


def _bytes_above(outcome: Outcome, usable_bytes: FloatArray) -> float:
    """Bytes above the usable ones, of all devices; inf for other failures, or if unknown."""
    is_overflow = isinstance(outcome, Infeasible) and outcome.reason == "memory"
    if not is_overflow or len(outcome.peak_bytes) != len(usable_bytes):
        return math.inf
    peaks = np.asarray(outcome.peak_bytes, dtype=np.float64)
    return float(np.maximum(peaks - usable_bytes, 0.0).sum())

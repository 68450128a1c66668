"""What a trial is worth to a policy: higher is better, finite whatever the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.placement import Infeasible, Measurement, Outcome
from graphs.problem import Problem

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


def reward(outcome: Outcome, reference: float, usable_bytes: FloatArray | None = None) -> float:
    """R = -sqrt(t / t_ref) of a placement that runs; -10 to -20 of one that doesn't.

    Source: -sqrt of the step time, Mirhoseini et al. 2017. Departure: time is relative to a
    reference, so that one set of hyper-parameters serves models of all sizes; it falls to -10 at
    most. A memory overflow is graded, -10 (1 + o / (o + 1)) with o the bytes above the usable ones
    relative to those, so that a policy is led back; any other failure is worth -20.

    Args:
      outcome: of a trial. A time that is not a positive number counts as a failure.
      reference: t_ref in seconds, above 0.
      usable_bytes: f8[D], memory minus reserve; None where it is not known.
    """
    if isinstance(outcome, Measurement) and 0.0 <= outcome.step_seconds < math.inf:
        return max(-math.sqrt(outcome.step_seconds / reference), FAILING_REWARD)
    overflow = math.inf
    if isinstance(outcome, Infeasible) and outcome.reason == "memory" and usable_bytes is not None:
        overflow = _overflow(outcome.peak_bytes, usable_bytes)
    grade = overflow / (overflow + 1.0) if math.isfinite(overflow) else 1.0
    return FAILING_REWARD * (1.0 + grade)


def rewards(
    outcomes: Sequence[Outcome], reference: float, usable_bytes: FloatArray | None = None
) -> FloatArray:
    """f8[B]: the reward of each outcome."""
    return np.array([reward(outcome, reference, usable_bytes) for outcome in outcomes])


def feasible(outcomes: Sequence[Outcome]) -> np.ndarray:
    """bool[B]: whether a placement ran and its time is a number."""
    return np.array(
        [
            isinstance(outcome, Measurement) and 0.0 <= outcome.step_seconds < math.inf
            for outcome in outcomes
        ],
        dtype=bool,
    )


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
    above = math.inf
    if outcome.reason == "memory" and len(outcome.peak_bytes) == len(usable_bytes):
        above = float(np.maximum(np.asarray(outcome.peak_bytes) - usable_bytes, 0.0).sum()) / 1e9
    return seconds + min(2.0 * above, 10.0)


def _overflow(peak_bytes: Sequence[int], usable_bytes: FloatArray) -> float:
    """Bytes above the usable ones, of all devices, relative to those; inf if unknown."""
    if len(peak_bytes) != len(usable_bytes):
        return math.inf
    above = np.maximum(np.asarray(peak_bytes, dtype=np.float64) - usable_bytes, 0.0).sum()
    return float(above / max(float(usable_bytes.sum()), 1.0))

"""What a placement is worth while annealing: its step time, more where it lacks memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, LongArray
from graphs.placement import Measurement, Outcome

# A placement that does not fit counts as at least so many times its step time. A placement that
# fits is then preferred unless it is more than twice as slow.
LEAST_PENALTY = 2.0


class Energy(NamedTuple):
    """Energies compare as tuples do: any placement that can run is better than any other.

    Attributes:
      is_infeasible: whether the placement lacks memory, or can't run at all.
      seconds: its step time, times `memory_penalty`; inf where it can't run.
    """

    is_infeasible: bool
    seconds: float


CANNOT_RUN = Energy(True, math.inf)


@compiled
def memory_penalty(peak_bytes: LongArray, usable: FloatArray, overflow_weight: float) -> float:
    """The factor on the step time: 1 where memory suffices, more the more is missing elsewhere.

    Without such a slope annealing could not find its way from placements that don't fit to
    placements that do.

    Args:
      peak_bytes: i8[D].
      usable: f8[D] bytes.
      overflow_weight: what is added for missing as much memory as a device has.
    """
    missing = 0.0
    for device in range(len(usable)):
        missing += max(peak_bytes[device] - usable[device], 0.0) / max(usable[device], 1.0)
    if missing == 0.0:
        return 1.0
    return LEAST_PENALTY + overflow_weight * missing


def energy_of(outcome: Outcome, usable: FloatArray, overflow_weight: float) -> Energy:
    """The energy of an evaluated placement.

    Args:
      outcome: what an evaluator said.
      usable: f8[D] bytes.
      overflow_weight: see `memory_penalty`.
    """
    if isinstance(outcome, Measurement):
        return Energy(False, outcome.step_seconds)
    if outcome.reason != "memory" or not outcome.peak_bytes:
        return CANNOT_RUN
    peak_bytes = np.array(outcome.peak_bytes, dtype=np.int64)
    penalty = float(memory_penalty(peak_bytes, usable, overflow_weight))
    return Energy(True, outcome.step_seconds * penalty)


def energy_from(array: np.ndarray) -> Energy:
    """An energy that was kept as an array f8[2]."""
    is_infeasible, seconds = array.tolist()
    return Energy(bool(is_infeasible), seconds)

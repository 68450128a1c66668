"""The problem that chains anneal: all ops, or with small ops fused, which is quicker to run."""

import math
from typing import NamedTuple

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Measurement, Outcome, Problem
from tfplace.grouping.fuse import FusedProblem, fused_problem
from tfplace.simulation.arrays import SimulationArrays, simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch

# Fusing is of use only if it leaves at most this share of the ops.
MOST_FUSED = 0.75


# A placement that does not fit counts as at least so many times its step time. A placement that
# fits is then preferred unless it is more than twice as slow.
LEAST_PENALTY = 2.0


class Energy(NamedTuple):
    """Energies compare as tuples do: any placement that can run is better than any other."""

    is_infeasible: bool  # whether the placement lacks memory, or can't run at all
    seconds: float  # its step time, times `memory_penalty`; inf where it can't run


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
    return 1.0 if missing == 0.0 else LEAST_PENALTY + overflow_weight * missing


def energy_of(outcome: Outcome, usable: FloatArray, overflow_weight: float) -> Energy:
    """The energy of an evaluated placement.

    Args:
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


class AnnealingProblem:
    """What the chains on one problem share.

    Attributes:
      problem: what they place, whole or fused.
      is_fused: which of the two.
      arrays: the problem as compiled code reads it.
      usable: f8[D] bytes.
    """

    def __init__(self, problem: Problem, fused: FusedProblem | None = None) -> None:
        """Lays the problem out for simulation; the fused one is annealed."""
        self._fused = fused
        self.is_fused = fused is not None
        self.problem = problem if fused is None else fused.problem
        self.arrays: SimulationArrays = simulation_arrays(self.problem)
        self.usable: FloatArray = self.problem.usable_bytes()
        self._scratch = new_scratch(self.arrays)

    def energy(self, device_of_op: IntArray, overflow_weight: float) -> Energy:
        """Simulates a placement of this problem; not from several threads at once."""
        seconds = float(simulate(self.arrays, self._scratch, device_of_op, np.inf))
        penalty = float(memory_penalty(self._scratch.peak, self.usable, overflow_weight))
        return Energy(penalty > 1.0 or not np.isfinite(seconds), seconds * penalty)

    def from_whole(self, device_of_op: IntArray) -> IntArray:
        """A placement of all ops as this problem has it."""
        return device_of_op if self._fused is None else self._fused.reduce(device_of_op)

    def to_whole(self, device_of_op: IntArray) -> IntArray:
        """A placement of this problem as one of all ops."""
        return device_of_op if self._fused is None else self._fused.expand(device_of_op)


def fused_annealing_problem(problem: Problem) -> AnnealingProblem | None:
    """The problem with small ops fused; None where that would be of no use.

    An executor runs ready ops depth first, one after another; fusing would hide just what its
    rules are about.
    """
    if problem.executor is not None:
        return None
    fused = fused_problem(problem)
    if fused.problem.num_ops > MOST_FUSED * problem.num_ops:
        return None
    return AnnealingProblem(problem, fused)

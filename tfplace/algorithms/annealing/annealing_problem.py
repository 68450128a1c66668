"""The problem that chains anneal: all ops, or with small ops fused, which is quicker to run."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.annealing.energy import Energy, memory_penalty
from tfplace.grouping.fuse import FusedProblem, fused_problem
from tfplace.simulation.arrays import SimulationArrays, simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch

# Fusing is of use only if it leaves at most this share of the ops.
MOST_FUSED = 0.75


class AnnealingProblem:
    """What the chains on one problem share.

    Attributes:
      problem: what they place, whole or fused.
      is_fused: which of the two.
      arrays: the problem as compiled code reads it.
      usable: f8[D] bytes.
    """

    def __init__(self, problem: Problem, fused: FusedProblem | None = None) -> None:
        """Lays the problem out for simulation.

        Args:
          problem: with all of its ops.
          fused: the same with small ops fused, which is annealed then.
        """
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

"""One chain of annealing on one problem, whole or fused, and what it runs on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.algorithms.annealing.chain import BEST, CURRENT, ChainConfig, anneal, new_chain
from tfplace.algorithms.annealing.levels import Levels, levels_of
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import colocation_units
from tfplace.grouping.roles import role_groups
from tfplace.search.kept.snapshot import Snapshot
from tfplace.simulation.arrays import SimulationArrays, simulation_arrays
from tfplace.simulation.kernel import simulate
from tfplace.simulation.scratch import new_scratch, timing_scratch

# (infeasible, energy): any feasible placement is better than any other.
Rank = tuple[bool, float]

# What an infeasible placement counts at least, in step times.
_INFEASIBLE = 2.0

# Keeping roles together is of use only if that leaves at most this share of the units.
MOST_ROLES = 0.8


@dataclasses.dataclass(frozen=True)
class Stretch:
    """How a walk goes on for a while.

    Attributes:
      kind_weights: [K] how often each kind of move is drawn.
      focus: the level drawn most, 0 coarsest to 1 finest.
      width: in levels, of the bell around it.
      temperature: as a share of the step time.
      overflow_weight: what a device's worth of missing memory adds, in step times.
      num_trials: moves to try.
    """

    kind_weights: Sequence[float]
    focus: float
    width: float
    temperature: float
    overflow_weight: float
    num_trials: int


class Ground:
    """What the walks on one problem share.

    Attributes:
      problem: whole or fused.
      arrays: as compiled code reads it.
      usable: f8[D] bytes.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.arrays: SimulationArrays = simulation_arrays(problem)
        self.usable: FloatArray = problem.usable_bytes()
        self._full = new_scratch(self.arrays)

    def rank(self, device_of_op: IntArray, overflow_weight: float) -> Rank:
        """What a placement is worth; not from several threads at once."""
        seconds = float(simulate(self.arrays, self._full, device_of_op))
        return rank_of(seconds, self._full.peak, self.usable, overflow_weight)

    def levels(self, sizes: Sequence[int], seed: int, by_role: bool = False) -> Levels:
        """The levels, coarse to fine, with groups that depend on the seed.

        Args:
          sizes: groups per level, ascending; colocation units come behind.
          seed: of the groups.
          by_role: whether coarse groups keep together what repeats itself, where much does.
        """
        units = colocation_units(self.problem.graph)
        roles = role_groups(self.problem, seed) if by_role else units
        if roles.num_groups > MOST_ROLES * units.num_groups:
            roles = units
        groupings = [
            coarsen(self.problem, size, seed, start=roles if size < roles.num_groups else units)
            for size in sizes
            if size < units.num_groups
        ]
        return levels_of(self.problem, [*groupings, units])


def rank_of(
    seconds: float, peak_bytes: Sequence[int] | np.ndarray, usable: FloatArray, weight: float
) -> Rank:
    """A placement that lacks memory costs more the more it lacks."""
    lacking = np.maximum(np.asarray(peak_bytes, dtype=np.float64) - usable, 0.0)
    if not math.isfinite(seconds):
        return True, math.inf
    if not lacking.any():
        return False, seconds
    whole = float((lacking / np.maximum(usable, 1.0)).sum())
    return True, seconds * (_INFEASIBLE + weight * whole)


class Walk:
    """A chain, its levels and its scratch."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self._ground = ground
        self._timing, self._full = timing_scratch(ground.arrays), new_scratch(ground.arrays)
        self._state = new_chain(ground.problem.num_ops, seed)
        self._levels: Levels | None = None

    @property
    def current_rank(self) -> Rank:
        return not self._state.feasible[CURRENT], float(self._state.energy[CURRENT])

    @property
    def best_rank(self) -> Rank:
        return not self._state.feasible[BEST], float(self._state.energy[BEST])

    def best(self) -> IntArray:
        """i4[N], a copy."""
        return self._state.best.copy()

    def state(self) -> Snapshot:
        """Where it is, by the names of ChainState."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: Mapping[str, np.ndarray], levels: Levels) -> None:
        """Goes on where `state` was taken.

        Raises:
          ValueError: the arrays are of another problem.
        """
        self._levels = levels
        for name, array in self._state._asdict().items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has shape {state[name].shape}, wanted {array.shape}")
            array[...] = state[name]

    def begin(self, levels: Levels, device_of_op: IntArray, rank: Rank) -> None:
        """Goes on from a placement with other levels."""
        self._levels = levels
        infeasible, energy = rank
        self._set_current(device_of_op, energy, not infeasible)
        state = self._state
        state.best[:] = device_of_op
        state.energy[BEST], state.feasible[BEST] = energy, not infeasible

    def copy_current(self, other: Walk) -> None:
        """Goes on from where another walk is."""
        infeasible, energy = other.current_rank
        self._set_current(other._state.device_of_op, energy, not infeasible)

    def _set_current(self, device_of_op: IntArray, energy: float, feasible: bool) -> None:
        state = self._state
        state.device_of_op[:] = device_of_op
        state.energy[CURRENT], state.feasible[CURRENT] = energy, feasible
        state.num_critical[0] = 0

    def run(self, stretch: Stretch) -> None:
        """A stretch of the chain."""
        assert self._levels is not None
        config = ChainConfig(
            _choice_limits(stretch, self._levels),
            self._ground.usable,
            stretch.overflow_weight,
            stretch.temperature,
        )
        anneal(
            self._ground.arrays,
            self._timing,
            self._full,
            self._levels,
            config,
            self._state,
            stretch.num_trials,
        )


def _choice_limits(stretch: Stretch, levels: Levels) -> FloatArray:
    """f8[L * K]: running sums of the weights of each level's kinds of move."""
    num_levels = len(levels.free_row) - 1
    middle = stretch.focus * (num_levels - 1)
    bell = np.exp(-(((np.arange(num_levels) - middle) / stretch.width) ** 2))
    bell *= np.diff(levels.free_row) > 0
    weights = bell[:, None] * np.asarray(stretch.kind_weights)
    limits: FloatArray = np.cumsum(weights.ravel())
    return limits

"""One chain of annealing on one problem, with the memory that its simulations need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.annealing.annealing_problem import AnnealingProblem
from tfplace.algorithms.annealing.compiled_chain import (
    BEST,
    CURRENT,
    ChainConfig,
    anneal,
    new_chain,
)
from tfplace.algorithms.annealing.config import AnnealingConfig
from tfplace.algorithms.annealing.energy import Energy
from tfplace.algorithms.annealing.levels import Levels
from tfplace.algorithms.annealing.moves import bell, choice_limits
from tfplace.search.kept.snapshot import Snapshot
from tfplace.simulation.scratch import new_scratch, timing_scratch


class Phase(NamedTuple):
    """How a chain goes on for a while.

    Attributes:
      focus: the level drawn most often, 0 for the coarsest to 1 for the finest.
      temperature: as a share of the step time.
      num_trials: moves to try.
    """

    focus: float
    temperature: float
    num_trials: int


class Chain:
    """A placement that is annealed, its levels and its scratch; one thread at a time."""

    def __init__(self, problem: AnnealingProblem, seed: int, config: AnnealingConfig) -> None:
        """A chain without placement and levels, which `begin` gives it."""
        self._problem = problem
        self._config = config
        self._timing = timing_scratch(problem.arrays)
        self._full = new_scratch(problem.arrays)
        self._state = new_chain(problem.problem.num_ops, seed)
        self._levels: Levels | None = None

    @property
    def current_energy(self) -> Energy:
        return self._energy(CURRENT)

    @property
    def best_energy(self) -> Energy:
        return self._energy(BEST)

    def best(self) -> IntArray:
        """i4[N], a copy."""
        return self._state.best.copy()

    def state(self) -> Snapshot:
        """Copies of all that its next moves depend on, but for the levels."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def set_state(self, state: Mapping[str, np.ndarray], levels: Levels) -> None:
        """Goes on where `state` was taken; ValueError if that was another problem's."""
        self._levels = levels
        for name, array in self._arrays().items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has shape {state[name].shape}, wanted {array.shape}")
            array[...] = state[name]

    def begin(self, levels: Levels, device_of_op: IntArray, energy: Energy) -> None:
        """Goes on from a placement i4[N], which is the best now, with other levels."""
        self._levels = levels
        self._set_current(device_of_op, energy)
        state = self._state
        state.best[:] = device_of_op
        state.energy[BEST], state.feasible[BEST] = energy.seconds, not energy.is_infeasible

    def copy_current(self, other: Chain) -> None:
        """Goes on from where another chain is."""
        self._set_current(other._state.position.device_of_op, other.current_energy)

    def run(self, phase: Phase) -> None:
        """Tries the moves of a phase."""
        assert self._levels is not None
        weights = bell(self._levels, phase.focus, self._config.focus)
        config = ChainConfig(
            choice_limits(self._levels, weights, self._config.kind_weights),
            self._problem.usable,
            self._config.overflow_weight,
            phase.temperature,
        )
        arrays, timing, full = self._problem.arrays, self._timing, self._full
        anneal(arrays, timing, full, self._levels, config, self._state, phase.num_trials)

    def _arrays(self) -> dict[str, np.ndarray]:
        state = self._state
        return {
            **state.position._asdict(),
            "best": state.best,
            "energy": state.energy,
            "feasible": state.feasible,
            "memory_binds": state.memory_binds,
        }

    def _energy(self, which: int) -> Energy:
        return Energy(not self._state.feasible[which], float(self._state.energy[which]))

    def _set_current(self, device_of_op: IntArray, energy: Energy) -> None:
        state = self._state
        state.position.device_of_op[:] = device_of_op
        state.position.num_critical[0] = 0  # the path was another placement's
        state.energy[CURRENT], state.feasible[CURRENT] = energy.seconds, not energy.is_infeasible

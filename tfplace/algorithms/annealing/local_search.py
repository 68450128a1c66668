"""Simulated annealing that leaves every evaluation to the evaluator, real runs among them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Outcome, Problem
from tfplace.algorithms.annealing import moves
from tfplace.algorithms.annealing.annealing_problem import (
    CANNOT_RUN,
    Energy,
    energy_from,
    energy_of,
)
from tfplace.algorithms.annealing.config import LocalSearchConfig
from tfplace.algorithms.annealing.levels import Levels, coarse_to_fine
from tfplace.algorithms.placers.one_shot import Start
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Proposal

# Of the trials, each of the last fifty or so counts in the share of those taken.
ACCEPTANCE_DECAY = 0.02

# Of a batch, so many neighbours are expected to be taken.
TAKEN_PER_BATCH = 0.2


class LocalSearch:
    """Anneals; never ends by itself.

    The first proposals are the starts. Then pass after pass anneals from the best placement so
    far, from coarse groups to single units. Every pass groups anew, with its own seed, since
    where the borders of coarse groups lie decides what a coarse move can do.

    Evaluations are the evaluator's and each counts as a trial; nothing is simulated in secret but
    what a start needs to fit memory.

    Source: Kirkpatrick, Gelatt, Vecchi 1983 (annealing); Karypis and Kumar 1998 (coarse to fine).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        starts: Sequence[Start],
        config: LocalSearchConfig | None = None,
    ) -> None:
        """Makes nothing before its turn; `starts` are i4[B, N]."""
        self._problem = problem
        self._seed = seed
        self._config = config or LocalSearchConfig()
        self._usable = problem.usable_bytes()
        self._starts = list(starts)
        self._best: IntArray | None = None
        self._best_energy = CANNOT_RUN
        self._position = moves.new_position(problem.num_ops, seed)
        self._energy = CANNOT_RUN  # of the position
        self._num_passes = 0
        self._trials_left = 0  # of this pass
        self._acceptance = 0.5
        self._levels: Levels | None = None  # of this pass
        self._num_free = 0  # units that can be moved

    def propose(self) -> Proposal | None:
        """The starts first; then neighbours of the current placement; None if no op is free."""
        if self._starts:
            return Proposal(self._starts.pop(0)())
        if self._trials_left <= 0 and not self._begin_pass():
            return None
        assert self._levels is not None
        size = round(TAKEN_PER_BATCH / max(self._acceptance, 1e-3))
        size = min(max(size, 2), self._config.max_batch, self._trials_left)
        weights = moves.bell(self._levels, self._share_done(), self._config.focus)
        limits = moves.choice_limits(self._levels, weights, self._config.kind_weights)
        neighbours = np.empty((size, self._problem.num_ops), dtype=np.int32)
        moves.fill_neighbours(self._levels, limits, self._position, neighbours)
        return Proposal(neighbours)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes starts or neighbours: keeps the best, and moves to the first acceptable one."""
        weight = self._config.overflow_weight
        energies = [energy_of(outcome, self._usable, weight) for outcome in outcomes]
        for placement, energy in zip(proposal.device_of_op, energies, strict=True):
            if self._best is None or energy < self._best_energy:
                self._best, self._best_energy = placement.copy(), energy
        if self._levels is None:
            return {"best_energy": self._best_energy.seconds}
        for placement, energy in zip(proposal.device_of_op, energies, strict=True):
            taken = self._accepts(energy)
            self._acceptance += ACCEPTANCE_DECAY * (taken - self._acceptance)
            if taken:
                self._position.device_of_op[:] = placement
                self._energy = energy
                break
        self._trials_left -= len(energies)
        return {
            "best_energy": self._best_energy.seconds,
            "temperature": self._temperature(),
            "acceptance": self._acceptance,
        }

    def state(self) -> Snapshot:
        """Pass, current and best placement, random generator."""
        state = {
            "num_starts": np.array(len(self._starts)),
            "num_passes": np.array(self._num_passes),
            "trials_left": np.array(self._trials_left),
            "acceptance": np.array(self._acceptance),
            "energy": np.array(self._energy),
            "best_energy": np.array(self._best_energy),
            "current": self._position.device_of_op.copy(),
            "random": self._position.random.copy(),
        }
        if self._best is not None:
            state["best"] = self._best
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken; KeyError or ValueError if that was another problem's."""
        self._starts = self._starts[len(self._starts) - int(state["num_starts"]) :]
        self._num_passes = int(state["num_passes"])
        self._trials_left = int(state["trials_left"])
        self._acceptance = float(state["acceptance"])
        self._energy, self._best_energy = (
            energy_from(state[name]) for name in ("energy", "best_energy")
        )
        self._best = state.get("best")
        self._position.device_of_op[:] = state["current"]
        self._position.random[:] = state["random"]
        if self._num_passes:
            self._make_levels(self._num_passes - 1)

    def _begin_pass(self) -> bool:
        """Begins the next pass from the best placement; False if nothing can be moved."""
        if self._best is None:
            return False
        self._make_levels(self._num_passes)
        if not self._num_free:
            return False
        self._num_passes += 1
        self._trials_left = self._pass_trials()
        self._position.device_of_op[:] = self._best
        self._energy = self._best_energy
        return True

    def _make_levels(self, number: int) -> None:
        """Makes the levels of a pass: 0, 1, ..."""
        sizes = self._config.sizes_for(self._problem.num_ops)
        self._levels = coarse_to_fine(self._problem, sizes, self._seed + number)
        self._num_free = int(self._levels.free_row[-1] - self._levels.free_row[-2])

    def _pass_trials(self) -> int:
        """How many trials this pass has."""
        return self._first_pass_trials() << (self._num_passes - 1)

    def _first_pass_trials(self) -> int:
        return min(self._config.first_pass_trials, self._config.trials_per_unit * self._num_free)

    def _share_done(self) -> float:
        """Of this pass."""
        return 1.0 - self._trials_left / self._pass_trials()

    def _temperature(self) -> float:
        """Geometric from hot to cold over the trials of a pass."""
        config = self._config
        # The fewer there are to move, the more each move changes.
        scale = config.first_pass_trials / self._first_pass_trials()
        hot = min(scale * config.hot * 2 ** (self._num_passes - 1), config.hottest)
        cold = min(scale * config.cold, hot)
        return float(hot * (cold / hot) ** self._share_done())

    def _accepts(self, energy: Energy) -> bool:
        """Metropolis's rule on the ratio of energies."""
        if not math.isfinite(energy.seconds):
            return False
        if energy.seconds <= self._energy.seconds:
            return True
        rise = math.log(energy.seconds / max(self._energy.seconds, 1e-300))
        chance = math.exp(-rise / self._temperature())
        return bool(moves.random_share(self._position.random) < chance)

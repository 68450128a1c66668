"""Simulated annealing from the best of many starts, from coarse groups to single ops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Infeasible, Outcome
from graphs.problem import Problem
from tfplace.algorithms.placers.etf import EarliestTaskFirst
from tfplace.algorithms.placers.heft import Heft
from tfplace.algorithms.placers.metis import Metis
from tfplace.algorithms.placers.moves import Neighbourhood, neighbourhood
from tfplace.algorithms.placers.single import Single
from tfplace.algorithms.placers.topological import Topological
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import colocation_units
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal

# A small graph soon needs no more of the first, cool pass.
FIRST_PASS_TRIALS_PER_UNIT = 20

# Of a state: how far it is.
_NUMBERS = (
    "_num_passes",
    "_hot",
    "_cold",
    "_level_trials",
    "_level_left",
    "_acceptance",
    "_energy",
)

STARTS = (Single, Topological, EarliestTaskFirst, Heft, Metis)


@dataclasses.dataclass(frozen=True)
class AnnealingConfig:
    """How local search goes about it.

    `tfplace/docs/decisions/017-annealing.md` has the figures behind the defaults.

    Attributes:
      level_sizes: groups per level, coarse to fine; colocation units come last. A level that
        the graph is too small for is left out.
      first_pass_trials: most trials of the first pass through all levels; each pass is twice as
        long as the one before, so any budget is used well.
      hot, cold: temperature at the start and end of a level, as a share of the step time:
        exp(-ln(new / old) / temperature) is the chance to take a worse placement. `hot` is the
        first pass's; each pass begins twice as hot as the one before, up to `hottest`.
      max_batch: most neighbours proposed at once. All are neighbours of one placement, and those
        after the first that is taken are wasted, so there are fewer while many are taken.
      overflow_weight: what a device's worth of missing memory adds, in step times.
    """

    level_sizes: Sequence[int] = (32, 128, 512)
    first_pass_trials: int = 1000
    hot: float = 0.002
    hottest: float = 0.1
    cold: float = 0.0002
    max_batch: int = 16
    overflow_weight: float = 10.0


class LocalSearch:
    """Anneals; never ends by itself.

    The first proposals are the starts: the one that was handed in, one device, m-TOPO, m-ETF,
    HEFT and minimum cuts. Then pass after pass anneals the groups of each level, coarse to fine,
    each level from the best placement so far. Every pass groups anew, with its own seed, since
    where the borders of coarse groups lie decides what a coarse move can do.

    Evaluations are the evaluator's and each counts as a trial; nothing is simulated in secret but
    what a start needs to fit memory.

    Source: Kirkpatrick, Gelatt, Vecchi 1983 (annealing); Karypis and Kumar 1998 (coarse to fine).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        start: IntArray | None = None,
        config: AnnealingConfig | None = None,
    ) -> None:
        """Keeps what is needed; starts and levels are made when their turn comes.

        Args:
          problem: what is to be placed.
          seed: of moves and acceptance.
          start: a legal placement i4[N] to begin with, or None.
          config: how to anneal.
        """
        self._problem = problem
        self._seed = seed
        self._config = config or AnnealingConfig()
        self._rng = np.random.default_rng(seed)
        self._starts: list[Callable[[], IntArray]] = [
            placer(problem, seed).place for placer in STARTS
        ]
        if start is not None:
            handed_in = np.array(start, dtype=np.int32)[None]
            self._starts.insert(0, lambda: handed_in)
        self._levels: list[Neighbourhood] = []  # still to come in this pass
        self._num_passes = 0
        self._hot, self._cold = self._config.hot, self._config.cold
        self._level: Neighbourhood | None = None
        self._level_trials, self._level_left = 1, 0
        self._acceptance = 0.5
        self._current: IntArray | None = None
        self._energy = math.inf
        self._best: IntArray | None = None
        self._best_rank = (True, math.inf)  # (infeasible, energy): any feasible one is better

    def propose(self) -> Proposal | None:
        """The starts first; then neighbours of the current placement; None if no op is free."""
        if self._starts:
            return Proposal(self._starts.pop(0)())
        if self._level_left <= 0 and not self._next_level():
            return None
        assert self._level is not None and self._current is not None
        size = round(0.2 / max(self._acceptance, 1e-3))
        size = min(max(size, 2), self._config.max_batch, self._level_left)
        return Proposal(self._level.neighbours(self._current, size, self._rng))

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes starts or neighbours: keeps the best, and moves to the first acceptable one."""
        energies = [self._energy_of(outcome) for outcome in outcomes]
        if self._level is None:
            self._keep_best(proposal, outcomes, energies)
            return {"best_energy": self._best_rank[1]}
        self._level_left -= len(energies)
        for placement, energy in zip(proposal.device_of_op, energies, strict=True):
            taken = self._accepts(energy)
            self._acceptance += 0.02 * (taken - self._acceptance)
            if taken:
                self._current, self._energy = placement, energy
                break
        self._keep_best(proposal, outcomes, energies)
        return {
            "best_energy": self._best_rank[1],
            "temperature": self._temperature(),
            "acceptance": self._acceptance,
        }

    def state(self) -> snapshot.Snapshot:
        """Pass, level, temperature, current and best placement, random generator."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        state = {
            "rng": snapshot.of_generator(self._rng),
            "numbers": np.array([float(number) for number in numbers]),
            "num_left": np.array([len(self._starts), len(self._levels)]),
            "has_begun": np.array(self._level is not None),
            "best_rank": np.array([float(value) for value in self._best_rank]),
        }
        if self._best is not None:
            state["best"] = self._best
        if self._current is not None:
            state["current"] = self._current
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken; the levels are made again, with the seed of the pass."""
        snapshot.into_generator(self._rng, state["rng"])
        for name, number in zip(_NUMBERS, state["numbers"].tolist(), strict=True):
            setattr(self, name, type(getattr(self, name))(number))
        num_starts, num_levels = (int(count) for count in state["num_left"])
        self._starts = self._starts[len(self._starts) - num_starts :]
        infeasible, energy = state["best_rank"].tolist()
        self._best, self._best_rank = state.get("best"), (bool(infeasible), energy)
        self._current = state.get("current")
        if state["has_begun"]:
            seed = self._seed + self._num_passes - 1
            levels = _levels(self._problem, self._config.level_sizes, seed)
            first = len(levels) - num_levels
            self._level, self._levels = levels[first - 1], levels[first:]

    def _next_level(self) -> bool:
        """Begins a level, of the next pass if need be; False if nothing can be moved."""
        if not self._levels:
            config = self._config
            self._levels = _levels(self._problem, config.level_sizes, self._seed + self._num_passes)
            if not self._levels:
                return False
            num_free = len(self._levels[-1].free)
            trials = min(config.first_pass_trials, FIRST_PASS_TRIALS_PER_UNIT * num_free)
            # The fewer there are to move, the more each move changes.
            scale = config.first_pass_trials / trials
            trials <<= self._num_passes
            self._level_trials = max(trials // len(self._levels), 1)
            self._hot = min(scale * config.hot * 2**self._num_passes, config.hottest)
            self._cold = min(scale * config.cold, self._hot)
            self._num_passes += 1
        self._current, self._energy = self._best, self._best_rank[1]
        self._level = self._levels.pop(0)
        self._level_left = self._level_trials
        return True

    def _temperature(self) -> float:
        """Geometric from hot to cold over the trials of a level."""
        done = 1.0 - self._level_left / self._level_trials
        return self._hot * (self._cold / self._hot) ** done

    def _accepts(self, energy: float) -> bool:
        """Metropolis's rule on the ratio of energies."""
        if not math.isfinite(energy):
            return False
        if energy <= self._energy:
            return True
        rise = math.log(energy / max(self._energy, 1e-300))
        return bool(self._rng.random() < math.exp(-rise / self._temperature()))

    def _energy_of(self, outcome: Outcome) -> float:
        """Step seconds; a placement that only lacks memory costs more the more it lacks."""
        if not isinstance(outcome, Infeasible):
            return outcome.step_seconds
        if outcome.reason != "memory" or not outcome.peak_bytes:
            return math.inf
        usable: FloatArray = self._problem.usable_bytes()
        lacking = np.maximum(np.array(outcome.peak_bytes) - usable, 0.0) / np.maximum(usable, 1.0)
        return outcome.step_seconds * (2.0 + self._config.overflow_weight * float(lacking.sum()))

    def _keep_best(
        self, proposal: Proposal, outcomes: Sequence[Outcome], energies: Sequence[float]
    ) -> None:
        ranks = [
            (isinstance(outcome, Infeasible), energy)
            for outcome, energy in zip(outcomes, energies, strict=True)
        ]
        index = min(range(len(ranks)), key=ranks.__getitem__)
        if self._best is None or ranks[index] < self._best_rank:
            self._best, self._best_rank = proposal.device_of_op[index].copy(), ranks[index]


def _levels(problem: Problem, sizes: Sequence[int], seed: int) -> list[Neighbourhood]:
    """The moves of each level, coarse to fine, that has anything to move."""
    units = colocation_units(problem.graph)
    groupings = [coarsen(problem, size, seed) for size in sizes if size < units.num_groups]
    levels = [neighbourhood(problem, grouping) for grouping in [*groupings, units]]
    return [level for level in levels if len(level.free)]

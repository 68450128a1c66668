"""Multilevel annealing inside the simulator: what `auto` spends most of its budget on."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Infeasible, Outcome
from graphs.problem import Problem
from tfplace.evaluation.simulation_arrays import (
    SimulationArrays,
    new_scratch,
    simulation_arrays,
    timing_scratch,
)
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import colocation_units
from tfplace.placers.annealing.chain import (
    BEST,
    CURRENT,
    ChainConfig,
    anneal,
    new_chain,
)
from tfplace.placers.annealing.levels import Levels, levels_of
from tfplace.placers.etf import EarliestTaskFirst
from tfplace.placers.heft import Heft
from tfplace.placers.metis import Metis
from tfplace.placers.one_shot import OneShot
from tfplace.placers.sct import SmallCommunicationTimes
from tfplace.placers.single import Single
from tfplace.placers.topological import Topological
from tfplace.trial import Burst, Proposal

STARTS: Sequence[type[OneShot]] = (Single, Topological, EarliestTaskFirst, Metis, Heft)

# Chains where trials are limited: the result then doesn't depend on the number of cores.
TRIAL_CHAINS = 2

# Trials per cycle where nothing is limited.
CYCLE_TRIALS = 20_000

# Grouping a larger graph takes seconds: it gets one pass, and one grouping per size.
LARGE_OPS = 50_000

# m-SCT's linear programs take 0.7 s for 22,000 ops; larger graphs need the time more.
MAX_SCT_OPS = 30_000


@dataclasses.dataclass(frozen=True)
class MultilevelConfig:
    """How the chains anneal; the figures behind the defaults stand in BUILD_NOTES.

    Attributes:
      level_sizes: groups per level, coarse to fine; colocation units come last. A level that
        the graph is too small for is left out.
      kind_weights: [K] how often each kind of move is drawn, in the order of the chain's kinds.
      pass_weights: each pass goes through all levels, coarse to fine, from the best placement so
        far, with groups of its own, and takes a share of what is left by its weight.
      hot, cold: temperature at the start and end of a pass, as a share of the step time:
        exp(-ln(new / old) / temperature) is the chance to take a worse placement. Both rise,
        `hot` up to `hottest`, where fewer than `full_scale_units` units can be moved.
      focus: width in levels of the bell that says how often each level is drawn; its middle
        moves from the coarsest to the finest level during a pass.
      burst_seconds: what a proposal takes, about.
      burst_trials: simulations of a chain per proposal where trials are limited, so that the
        result doesn't depend on the clock.
      exchanges: how often in a pass the worse chains take over the best one's placement.
      overflow_weight: what a device's worth of missing memory adds, in step times.
    """

    level_sizes: Sequence[int] = (16, 24, 64, 96, 256, 384, 1024)
    kind_weights: Sequence[float] = (0.3, 0.2, 0.1, 0.15, 0.1, 0.15, 0.03)
    pass_weights: Sequence[float] = (1.0, 1.0, 1.0, 3.0)
    hot: float = 0.004
    hottest: float = 0.1
    cold: float = 0.0002
    full_scale_units: int = 500
    focus: float = 1.2
    burst_seconds: float = 0.2
    burst_trials: int = 50
    exchanges: int = 8
    overflow_weight: float = 10.0


class Multilevel:
    """Anneals several chains, one per core, and reports each improvement.

    The first proposals are the starts: those handed in, one device, m-TOPO, m-ETF, minimum cuts,
    HEFT, and m-SCT for graphs it can handle. Then each proposal is a burst: compiled chains run
    for about a fifth of a second, their simulations count as trials, and what is the best so far
    is proposed if it is new. How long to cool is known from what is left, which the search says.

    Source: Kirkpatrick, Gelatt, Vecchi 1983 (annealing); Karypis and Kumar 1998 (coarse to fine).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        starts: Sequence[IntArray] = (),
        num_chains: int | None = None,
        config: MultilevelConfig | None = None,
    ) -> None:
        """Keeps what is needed; starts and levels are made when their turn comes.

        Args:
          problem: what is to be placed.
          seed: of moves and acceptance.
          starts: placements i4[N] to begin with.
          num_chains: as many as this process may use cores if None.
          config: how to anneal.
        """
        self._problem = problem
        self._seed = seed
        config = config or MultilevelConfig()
        if problem.num_ops > LARGE_OPS:
            config = dataclasses.replace(
                config, level_sizes=config.level_sizes[::2], pass_weights=(1.0,)
            )
        self._config = config
        self._usable: FloatArray = problem.usable_bytes()
        placers: list[type[OneShot]] = list(STARTS)
        if problem.num_ops <= MAX_SCT_OPS:
            placers.append(SmallCommunicationTimes)
        self._starts: list[Callable[[], IntArray]] = [
            placer(problem, seed).place for placer in placers
        ]
        if len(starts):
            handed_in = np.array(starts, dtype=np.int32)
            self._starts.insert(0, lambda: handed_in)
        self._num_chains = num_chains or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._num_chains, "annealing")
        self._best: IntArray | None = None
        self._best_rank = (True, math.inf)  # (infeasible, energy): any feasible one is better
        self._arrays = simulation_arrays(problem)
        self._chains: list[_Chain] = []
        self._seconds_left = math.inf
        self._trials_left: int | None = None
        self._whole = 0.0  # what was left when annealing began, in trials or seconds
        self._num_free = 1
        self._num_trials = 0
        self._pass = -1
        self._num_exchanges = 0
        self._burst = 1

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        """Told before each proposal how much is left; trials decide where they are limited."""
        self._seconds_left, self._trials_left = seconds_left, trials_left

    def propose(self) -> Proposal | None:
        """The starts first; then bursts of annealing; None if no op is free."""
        if self._starts:
            return Proposal(self._starts.pop(0)())
        if not self._chains and not self._make_chains():
            return None
        done = self._done()
        limits = np.cumsum(self._config.pass_weights) / np.sum(self._config.pass_weights)
        number = min(int(np.searchsorted(limits, done, side="right")), len(limits) - 1)
        first = limits[number - 1] if number else 0.0
        done_of_pass = min((done - first) / (limits[number] - first), 1.0)
        if number != self._pass:
            self._begin_pass(number)
        num_trials = self._run_burst(done_of_pass)
        self._exchange(done_of_pass)
        best = min(self._chains, key=lambda chain: chain.best_rank)
        placements = np.empty((0, self._problem.num_ops), dtype=np.int32)
        if best.best_rank < self._best_rank:
            self._best, self._best_rank = best.best(), best.best_rank
            placements = self._best[None]
        return Burst(placements, num_trials)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes what the starts are worth; a burst has learned already."""
        if not isinstance(proposal, Burst):
            for placement, outcome in zip(proposal.device_of_op, outcomes, strict=True):
                rank = (isinstance(outcome, Infeasible), self._energy_of(outcome))
                if self._best is None or rank < self._best_rank:
                    self._best, self._best_rank = placement.copy(), rank
        return {"best_energy": self._best_rank[1]}

    def _make_chains(self) -> bool:
        """The chains, without levels; False if nothing can be moved."""
        free = self._problem.allowed().sum(axis=1) > 1
        if self._best is None or not free.any() or not math.isfinite(self._best_rank[1]):
            return False
        count = self._num_chains if self._trials_left is None else TRIAL_CHAINS
        self._chains = [
            _Chain(self._problem, self._arrays, self._usable, self._seed * 1000 + number)
            for number in range(count)
        ]
        self._num_free = len(np.unique(colocation_units(self._problem.graph).group_of_op[free]))
        self._whole = self._left()
        return True

    def _left(self) -> float:
        return self._seconds_left if self._trials_left is None else float(self._trials_left)

    def _done(self) -> float:
        """Share of the annealing that is done; without any limit it begins anew now and then."""
        if math.isinf(self._whole):
            return self._num_trials % CYCLE_TRIALS / CYCLE_TRIALS
        return 1.0 - self._left() / max(self._whole, 1e-9)

    def _begin_pass(self, number: int) -> None:
        """New groups for every chain, which goes on from the best placement."""
        assert self._best is not None
        self._pass, self._num_exchanges = number, 0
        made = self._pool.map(
            lambda pair: _levels(self._problem, self._config.level_sizes, pair[1] * 100 + number),
            [(chain, self._seed + index) for index, chain in enumerate(self._chains)],
        )
        for chain, levels in zip(self._chains, made, strict=True):
            chain.begin(levels, self._best, self._best_rank)

    def _run_burst(self, done: float) -> int:
        """Runs the chains side by side; returns how many trials that took."""
        config = self._config
        # The fewer there are to move, the more each move changes.
        scale = max(config.full_scale_units / self._num_free, 1.0)
        hot = min(config.hot * scale, config.hottest)
        temperature = hot * (config.cold / config.hot) ** done
        chains, count = self._chains, self._burst
        if self._trials_left is not None:
            # One trial stays for the evaluation of what is found.
            left = max(self._trials_left - 1, 1)
            chains = chains[:left]
            count = min(config.burst_trials, left // len(chains))
        began = time.monotonic()
        runs = [self._pool.submit(chain.run, config, done, temperature, count) for chain in chains]
        for run in runs:
            run.result()
        if self._trials_left is None:
            seconds = max(time.monotonic() - began, 1e-6)
            wanted = min(config.burst_seconds, max(self._seconds_left, 0.01)) / seconds
            self._burst = max(int(count * min(wanted, 4.0)), 1)
        self._num_trials += count * len(chains)
        return count * len(chains)

    def _exchange(self, done: float) -> None:
        """Now and then the chains go on from the best of their current placements."""
        turn = int(done * (self._config.exchanges + 1))
        if turn > self._num_exchanges:
            self._num_exchanges = turn
            best = min(self._chains, key=lambda chain: chain.current_rank)
            for chain in self._chains:
                if chain is not best:
                    chain.copy_current(best)

    def _energy_of(self, outcome: Outcome) -> float:
        """Step seconds; a placement that only lacks memory costs more the more it lacks."""
        if not isinstance(outcome, Infeasible):
            return outcome.step_seconds
        if outcome.reason != "memory" or not outcome.peak_bytes:
            return math.inf
        over = np.maximum(np.array(outcome.peak_bytes) - self._usable, 0.0)
        lacking = float((over / np.maximum(self._usable, 1.0)).sum())
        return outcome.step_seconds * (2.0 + self._config.overflow_weight * lacking)


class _Chain:
    """One chain of annealing and what it runs on."""

    def __init__(
        self, problem: Problem, arrays: SimulationArrays, usable: FloatArray, seed: int
    ) -> None:
        self._arrays = arrays
        self._timing, self._full = timing_scratch(arrays), new_scratch(arrays, 0)
        self._usable = usable
        self._state = new_chain(problem.num_ops, seed)
        self._levels: Levels | None = None

    @property
    def current_rank(self) -> tuple[bool, float]:
        return not self._state.feasible[CURRENT], float(self._state.energy[CURRENT])

    @property
    def best_rank(self) -> tuple[bool, float]:
        return not self._state.feasible[BEST], float(self._state.energy[BEST])

    def best(self) -> IntArray:
        """i4[N], a copy."""
        return self._state.best.copy()

    def begin(self, levels: Levels, device_of_op: IntArray, rank: tuple[bool, float]) -> None:
        """Goes on from a placement with other levels."""
        self._levels = levels
        infeasible, energy = rank
        self._set_current(device_of_op, energy, not infeasible)
        state = self._state
        state.best[:] = device_of_op
        state.energy[BEST], state.feasible[BEST] = energy, not infeasible

    def copy_current(self, other: _Chain) -> None:
        """Goes on from where another chain is."""
        infeasible, energy = other.current_rank
        self._set_current(other._state.device_of_op, energy, not infeasible)

    def _set_current(self, device_of_op: IntArray, energy: float, feasible: bool) -> None:
        state = self._state
        state.device_of_op[:] = device_of_op
        state.energy[CURRENT], state.feasible[CURRENT] = energy, feasible
        state.num_critical[0] = 0

    def run(
        self, config: MultilevelConfig, done: float, temperature: float, num_trials: int
    ) -> None:
        """A stretch of the chain."""
        assert self._levels is not None
        choice_limits = _choice_limits(config, done, self._levels)
        chain_config = ChainConfig(choice_limits, self._usable, config.overflow_weight, temperature)
        anneal(
            self._arrays,
            self._timing,
            self._full,
            self._levels,
            chain_config,
            self._state,
            num_trials,
        )


def _choice_limits(config: MultilevelConfig, done: float, levels: Levels) -> FloatArray:
    """f8[L * K]: running sums of the weights of each level's kinds of move."""
    num_levels = len(levels.free_row) - 1
    focus = done * (num_levels - 1)
    bell = np.exp(-(((np.arange(num_levels) - focus) / config.focus) ** 2))
    bell *= np.diff(levels.free_row) > 0
    weights = bell[:, None] * np.asarray(config.kind_weights)
    limits: FloatArray = np.cumsum(weights.ravel())
    return limits


def _levels(problem: Problem, sizes: Sequence[int], seed: int) -> Levels:
    """The levels, coarse to fine, with groups that depend on the seed."""
    units = colocation_units(problem.graph)
    groupings = [
        coarsen(problem, size, seed + index)
        for index, size in enumerate(sizes)
        if size < units.num_groups
    ]
    return levels_of(problem, [*groupings, units])

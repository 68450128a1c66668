"""Multilevel annealing inside the simulator: what `auto` spends most of its budget on."""

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Outcome, Problem
from tfplace.algorithms.annealing.annealing_problem import (
    CANNOT_RUN,
    AnnealingProblem,
    energy_from,
    energy_of,
    fused_annealing_problem,
)
from tfplace.algorithms.annealing.chain import Phase
from tfplace.algorithms.annealing.config import LARGE_OPS, MultilevelConfig
from tfplace.algorithms.annealing.plan import Budget, fullest_plan, plans
from tfplace.algorithms.annealing.population import Candidate, Population
from tfplace.algorithms.placers.one_shot import Start
from tfplace.grouping.copies import is_mostly_repeated, is_split
from tfplace.grouping.quotient import colocation_units
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Burst, Proposal

# Chains where trials are limited: the result then doesn't depend on the number of cores.
TRIAL_CHAINS = 2

# Trials per cycle where nothing is limited.
CYCLE_TRIALS = 20_000

# A slot that tries fewer moves per chain is not worth the while, ...
MIN_SLOT_TRIALS = 400

# ... nor one that lasts less than this many times as long as making its levels.
MIN_SLOT_LEVELS = 3.0
LEVEL_SECONDS_PER_OP = 4e-5

_POPULATION = "population/"


class Multilevel:
    """Anneals many short runs, the best of them longer, and reports each improvement.

    The first proposals are the starts. Then each proposal is a burst: compiled chains, one per
    core, run for about a fifth of a second, their simulations count as trials, and what is the
    best so far is proposed if it is new. The rounds begin on the fused problem, whose simulation
    takes a third of the time, and end on the whole one. How long to cool is known from what is
    left, which the search says.

    Source: Kirkpatrick, Gelatt, Vecchi 1983 (annealing); Karypis and Kumar 1998 (coarse to fine).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        starts: Sequence[Start],
        num_chains: int | None = None,
        config: MultilevelConfig | None = None,
    ) -> None:
        """Makes nothing before its turn; of the starts i4[B, N] the best is annealed."""
        self._problem = problem
        self._seed = seed
        config = config or MultilevelConfig()
        # The fused problem has the levels of the whole one.
        config = dataclasses.replace(config, level_sizes=config.sizes_for(problem.num_ops))
        if is_split(problem):
            rounds, hot = config.split_rounds, config.split_hot
            config = dataclasses.replace(config, rounds=rounds, hot=hot)
        elif is_mostly_repeated(problem):
            config = dataclasses.replace(config, rounds=config.repeated_rounds)
        self._config = config
        self._usable = problem.usable_bytes()
        self._starts = list(starts)
        self._num_chains = num_chains or len(os.sched_getaffinity(0))
        self._best: IntArray | None = None
        self._best_energy = CANNOT_RUN
        self._left = Budget()
        self._budget = Budget()  # what was left when annealing began
        self._goes_on, self._in_turn = False, False
        self._plan_number = 0
        self._population: Population | None = None
        self._num_trials = 0
        self._trials_per_burst = 1  # of each chain, where the clock decides
        allowed = problem.allowed().sum(axis=1) > 1
        self._num_free = len(np.unique(colocation_units(problem.graph).group_of_op[allowed]))

    def go_on(self, in_turn: bool = False) -> None:
        """Told before another search with it: what is left then is for the rest of the annealing.

        Args:
          in_turn: chains run one after another, on one core.
        """
        self._goes_on, self._in_turn = True, in_turn

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        """Told before each proposal how much is left."""
        left = Budget(seconds_left, trials_left)
        if self._goes_on and self._population is not None:
            self._budget = left.as_rest_after(self._share_used())
        self._left, self._goes_on = left, False

    def propose(self) -> Proposal | None:
        """The starts first; then bursts of annealing; None if no op is free."""
        if self._starts:
            return Proposal(self._starts.pop(0)())
        if self._population is None:
            can_run = math.isfinite(self._best_energy.seconds)
            if not self._num_free or not can_run or self._is_too_large():
                return None
            self._budget = self._left
            self._population = self._planned()
        population = self._population
        share_used = self._share_used()
        number, num_simulated = population.plan.slot_number(share_used), 0
        if number != population.slot_number:
            assert self._best is not None
            num_simulated = population.begin_slot(number, Candidate(self._best, self._best_energy))
        slot = population.slot
        share_of_slot = min((share_used - slot.first) / (slot.last - slot.first), 1.0)
        num_simulated += self._run_burst(population, share_of_slot, num_simulated)
        population.exchange(share_of_slot)
        improved = population.improvement(self._best_energy)
        if improved is None:
            return Burst(np.empty((0, self._problem.num_ops), dtype=np.int32), num_simulated)
        return Burst(improved[None], num_simulated)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes what starts and improvements are worth."""
        for placement, outcome in zip(proposal.device_of_op, outcomes, strict=True):
            energy = energy_of(outcome, self._usable, self._config.overflow_weight)
            if self._best is None or energy < self._best_energy:
                self._best, self._best_energy = placement.copy(), energy
        return {"best_energy": self._best_energy.seconds}

    def state(self) -> Snapshot:
        """The best, how far annealing is, and the population once there is one."""
        has_trials = self._budget.trials is not None
        state = {
            "num_starts": np.array(len(self._starts)),
            "best_energy": np.array(self._best_energy),
            "budget_seconds": np.array(self._budget.seconds),
            "budget_trials": np.array(self._budget.trials if has_trials else -1),
            "plan_number": np.array(self._plan_number),
            "num_trials": np.array(self._num_trials),
            "trials_per_burst": np.array(self._trials_per_burst),
            "num_chains": np.array(0 if self._population is None else len(self._population.chains)),
        }
        if self._best is not None:
            state["best"] = self._best
        if self._population is not None:
            state |= {_POPULATION + name: array for name, array in self._population.state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken; KeyError or ValueError if that was another problem's."""
        self._starts = self._starts[len(self._starts) - int(state["num_starts"]) :]
        self._best, self._best_energy = state.get("best"), energy_from(state["best_energy"])
        trials = int(state["budget_trials"])
        self._budget = Budget(float(state["budget_seconds"]), None if trials < 0 else trials)
        self._num_trials = int(state["num_trials"])
        self._trials_per_burst = int(state["trials_per_burst"])
        num_chains = int(state["num_chains"])
        if num_chains:
            self._population = self._planned(num_chains, int(state["plan_number"]))
            of_population = {
                name.removeprefix(_POPULATION): array
                for name, array in state.items()
                if name.startswith(_POPULATION)
            }
            self._population.set_state(of_population)

    def _is_too_large(self) -> bool:
        """Whether the time that is left would go into the levels of a large problem."""
        is_by_clock = self._left.trials is None
        is_large = self._problem.num_ops > LARGE_OPS
        return is_large and is_by_clock and self._left.seconds < _slot_seconds(self._problem)

    def _planned(self, num_chains: int | None = None, plan_number: int | None = None) -> Population:
        """A population with the plan that the budget allows, or with that of a kept state."""
        if num_chains is None:
            num_chains = self._num_chains if self._budget.trials is None else TRIAL_CHAINS
        problems = {False: AnnealingProblem(self._problem)}
        if any(each.is_fused for each in self._config.rounds):
            fused = fused_annealing_problem(self._problem)
            if fused is not None:
                problems[True] = fused
        rounds = [
            dataclasses.replace(each, is_fused=each.is_fused and True in problems)
            for each in self._config.rounds
        ]
        candidates = plans(rounds, num_chains)
        if plan_number is None:
            plan_number = fullest_plan(candidates, *self._lengths(problems, num_chains))
        self._plan_number = plan_number
        return Population(problems, candidates[plan_number], num_chains, self._seed, self._config)

    def _lengths(
        self, problems: Mapping[bool, AnnealingProblem], num_chains: int
    ) -> tuple[float, Mapping[bool, float]]:
        """How long all slots last, and each at least, by whether it is fused.

        In seconds where these are limited, else in trials of a chain.
        """
        if self._budget.trials is not None or not self._budget.has_limit:
            trials = CYCLE_TRIALS if self._budget.trials is None else self._budget.trials
            return trials / num_chains, dict.fromkeys((False, True), float(MIN_SLOT_TRIALS))
        assert self._best is not None
        least = {}
        for is_fused, problem in problems.items():
            placement = problem.from_whole(self._best)
            problem.energy(placement, 0.0)  # compiles
            began = time.monotonic()
            problem.energy(placement, 0.0)
            trials_seconds = MIN_SLOT_TRIALS * (time.monotonic() - began)
            least[is_fused] = trials_seconds + _slot_seconds(problem.problem)
        return self._budget.seconds, least

    def _share_used(self) -> float:
        """How much of the annealing is done; without any limit it begins anew now and then."""
        if not self._budget.has_limit:
            return self._num_trials % CYCLE_TRIALS / CYCLE_TRIALS
        return self._budget.share_used(self._left)

    def _run_burst(self, population: Population, share_of_slot: float, num_simulated: int) -> int:
        """Runs the chains side by side for a while; returns how many placements they simulated.

        `num_simulated` is what this proposal has simulated before.
        """
        num_chains, count = len(population.chains), self._trials_per_burst
        if self._left.trials is not None:
            # One trial stays for the evaluation of what is found.
            left = max(self._left.trials - 1 - num_simulated, 1)
            num_chains = min(num_chains, left)
            count = min(self._config.burst_trials, left // num_chains)
        phase = Phase(share_of_slot, self._temperature(share_of_slot), count)
        began = time.monotonic()
        population.run(phase, num_chains, self._in_turn)
        if self._left.trials is None:
            seconds = max(time.monotonic() - began, 1e-6)
            wanted = min(self._config.burst_seconds, max(self._left.seconds, 0.01)) / seconds
            # Growing by no more than four: the first burst compiles, or is too short to be timed.
            self._trials_per_burst = max(int(count * min(wanted, 4.0)), 1)
        self._num_trials += count * num_chains
        return count * num_chains

    def _temperature(self, share_of_slot: float) -> float:
        """Geometric from hot to cold; hotter the fewer there are to move: each changes more."""
        config = self._config
        scale = max(config.full_scale_units / self._num_free, 1.0)
        hot = min(config.hot * scale, config.hottest)
        return hot * (config.cold / config.hot) ** share_of_slot


def _slot_seconds(problem: Problem) -> float:
    """What a slot lasts at least, beside the levels that are made for it."""
    return MIN_SLOT_LEVELS * LEVEL_SECONDS_PER_OP * problem.num_ops

"""The chains that run side by side, and the placements that go from round to round."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.annealing.annealing_problem import (
    CANNOT_RUN,
    AnnealingProblem,
    Energy,
    energy_from,
)
from tfplace.algorithms.annealing.chain import Chain, Phase
from tfplace.algorithms.annealing.config import MultilevelConfig
from tfplace.algorithms.annealing.levels import Levels, LevelsInTurn
from tfplace.algorithms.annealing.plan import Plan, Round, RunSlot
from tfplace.search.kept.snapshot import Snapshot

# Before the first slot.
NO_SLOT = -1


class Candidate(NamedTuple):
    """A placement of the problem that a round anneals.

    Attributes:
      device_of_op: i4[N] of that problem.
      energy: on that problem.
    """

    device_of_op: IntArray
    energy: Energy


class Population:
    """Chains, and the candidates that they take up slot by slot.

    Attributes:
      plan: the slots.
      slot_number: the one that runs.
      chains: one per thread.
    """

    def __init__(
        self,
        problems: Mapping[bool, AnnealingProblem],
        plan: Plan,
        num_chains: int,
        seed: int,
        config: MultilevelConfig,
    ) -> None:
        """No chain runs before `begin_slot`; `problems` are by whether they are fused."""
        self.plan = plan
        self.slot_number = NO_SLOT
        self.chains: list[Chain] = []
        self._problems = problems
        self._levels_of: dict[bool, LevelsInTurn] = {}  # by whether it is fused
        self._num_chains = num_chains
        self._seed = seed
        self._config = config
        self._pool = ThreadPoolExecutor(num_chains, "annealing")
        self._candidates: list[Candidate] = []  # that this round began with
        self._results: list[Candidate] = []  # of this round's slots that are done
        self._best_reported = CANNOT_RUN  # of fused placements
        self._num_exchanges = 0  # of this slot

    @property
    def slot(self) -> RunSlot:
        return self.plan.slots[self.slot_number]

    @property
    def round(self) -> Round:
        return self.plan.round_of(self.slot_number)

    @property
    def problem(self) -> AnnealingProblem:
        """The one that the present round anneals."""
        return self._problems[self.round.is_fused]

    def begin_slot(self, number: int, best: Candidate) -> int:
        """Gives each chain a candidate and new levels; a new round takes the best of the last.

        Returns how many placements were simulated for that. `best` is of the whole problem.
        """
        before = None if self.slot_number == NO_SLOT else self.round
        goes_on = before is not None and number > self.slot_number
        is_new_round = not goes_on or self.slot.round_number != self.plan.slots[number].round_number
        self._results += [Candidate(chain.best(), chain.best_energy) for chain in self.chains]
        self.slot_number, self._num_exchanges = number, 0
        num_simulated = 0
        if is_new_round:
            results = self._results if goes_on else []
            was_fused = before is not None and before.is_fused
            self._candidates, num_simulated = self._chosen(results, was_fused, best)
            self._results = []
        if before is None or before.is_fused != self.round.is_fused:
            self.chains = self._new_chains()
        for index, (chain, levels) in enumerate(zip(self.chains, self._levels(), strict=True)):
            turn = self.slot.number * self._num_chains + index
            chosen = self._candidates[turn % len(self._candidates)]
            chain.begin(levels, chosen.device_of_op, chosen.energy)
        return num_simulated

    def run(self, phase: Phase, num_chains: int, in_turn: bool = False) -> None:
        """Runs the first of the chains side by side; compiled code doesn't hold Python's lock."""
        if in_turn:
            for chain in self.chains[:num_chains]:
                chain.run(phase)
            return
        for run in [self._pool.submit(chain.run, phase) for chain in self.chains[:num_chains]]:
            run.result()

    def exchange(self, share_of_slot: float) -> None:
        """Now and then all chains go on from the best of their placements.

        Only in rounds that began with a single candidate, the first one among them; where there
        were more, the chains are to stay apart.
        """
        turn = int(share_of_slot * (self._config.exchanges + 1))
        if len(self._candidates) == 1 and turn > self._num_exchanges:
            self._num_exchanges = turn
            best = min(self.chains, key=lambda chain: chain.current_energy)
            for chain in self.chains:
                if chain is not best:
                    chain.copy_current(best)

    def improvement(self, best: Energy) -> IntArray | None:
        """i4[N] of the whole problem: the best of all chains, if it was not reported before.

        Only the evaluator finds out what a fused placement takes on the whole problem. So it is
        compared with fused placements that were reported, not with the best that it has seen.
        """
        chain = min(self.chains, key=lambda chain: chain.best_energy)
        is_fused = self.round.is_fused
        if chain.best_energy >= (self._best_reported if is_fused else best):
            return None
        if is_fused:
            self._best_reported = chain.best_energy
        return self.problem.to_whole(chain.best())

    def state(self) -> Snapshot:
        """Chains with their random numbers, candidates, results, and where in the plan it is."""
        state = {
            "slot_number": np.array(self.slot_number),
            "num_exchanges": np.array(self._num_exchanges),
            "best_reported": np.array(self._best_reported),
            **_arrays_of("candidates", self._candidates),
            **_arrays_of("results", self._results),
        }
        for number, chain in enumerate(self.chains):
            state |= {f"chain{number}/{name}": array for name, array in chain.state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken; the levels are made again, with the slot's seeds."""
        self.slot_number = int(state["slot_number"])
        self._num_exchanges = int(state["num_exchanges"])
        self._best_reported = energy_from(state["best_reported"])
        self._candidates = _candidates_from("candidates", state)
        self._results = _candidates_from("results", state)
        self.chains = self._new_chains()
        for number, (chain, levels) in enumerate(zip(self.chains, self._levels(), strict=True)):
            prefix = f"chain{number}/"
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            chain.set_state(own, levels)

    def _chosen(
        self, results: Sequence[Candidate], were_fused: bool, best: Candidate
    ) -> tuple[list[Candidate], int]:
        """What this round goes on from, and how many placements were simulated to know."""
        count = self.round.num_candidates
        if not results:
            return [self._simulated(self.problem, self.problem.from_whole(best.device_of_op))], 1
        if not were_fused:
            return sorted(results, key=_energy)[:count], 0
        # What is best by the fused problem need not be so by the whole one, nor better than what
        # was there before.
        whole, fused = self._problems[False], self._problems[True]
        exact = [self._simulated(whole, fused.to_whole(each.device_of_op)) for each in results]
        if self.round.is_fused:
            ranked = sorted(range(len(results)), key=lambda number: exact[number].energy)
            return [results[number] for number in ranked[:count]], len(results)
        return sorted([*exact, best], key=_energy)[:count], len(results)

    def _simulated(self, problem: AnnealingProblem, device_of_op: IntArray) -> Candidate:
        return Candidate(device_of_op, problem.energy(device_of_op, self._config.overflow_weight))

    def _new_chains(self) -> list[Chain]:
        first = self._seed * 1000 + 500 * self.round.is_fused
        return [Chain(self.problem, first + i, self._config) for i in range(self._num_chains)]

    def _levels(self) -> list[Levels]:
        """Levels of this slot for each chain."""
        first = self._seed * 1000 + self.slot_number * self._num_chains
        is_fused = self.round.is_fused
        if is_fused not in self._levels_of:
            self._levels_of[is_fused] = LevelsInTurn(self.problem.problem, self._config.level_sizes)
        of_problem = self._levels_of[is_fused]

        def levels(index: int) -> Levels:
            # Every other run moves other things as one: either way finds what the other misses. It
            # changes from round to round, so that a single chain does both.
            turn = self.slot.number * self._num_chains + index + self.slot.round_number
            return of_problem.levels(first + index, turn)

        return list(self._pool.map(levels, range(self._num_chains)))


def _energy(candidate: Candidate) -> Energy:
    return candidate.energy


def _arrays_of(name: str, candidates: Sequence[Candidate]) -> Snapshot:
    return {
        f"{name}/devices": np.array([each.device_of_op for each in candidates]),
        f"{name}/energies": np.array([each.energy for each in candidates], dtype=np.float64),
    }


def _candidates_from(name: str, state: Mapping[str, np.ndarray]) -> list[Candidate]:
    pairs = zip(state[f"{name}/devices"], state[f"{name}/energies"], strict=True)
    return [Candidate(devices, energy_from(row)) for devices, row in pairs]

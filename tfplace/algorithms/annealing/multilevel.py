"""Multilevel annealing inside the simulator: what `auto` spends most of its budget on."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Outcome
from graphs.problem import Problem
from tfplace.algorithms.annealing.levels import Levels
from tfplace.algorithms.annealing.rounds import Round, Slot, longest_plan, plans, slots_of
from tfplace.algorithms.annealing.walk import Ground, Rank, Stretch, Walk, rank_of
from tfplace.algorithms.placers.etf import EarliestTaskFirst
from tfplace.algorithms.placers.heft import Heft
from tfplace.algorithms.placers.metis import Metis
from tfplace.algorithms.placers.one_shot import OneShot
from tfplace.algorithms.placers.sct import SmallCommunicationTimes
from tfplace.algorithms.placers.single import Single
from tfplace.algorithms.placers.topological import Topological
from tfplace.grouping.fuse import FusedProblem, fused_problem
from tfplace.grouping.quotient import colocation_units
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Burst, Proposal

STARTS: Sequence[type[OneShot]] = (Single, Topological, EarliestTaskFirst, Metis, Heft)

# Chains where trials are limited: the result then doesn't depend on the number of cores.
TRIAL_CHAINS = 2

# Trials per cycle where nothing is limited.
CYCLE_TRIALS = 20_000

# Grouping a larger graph takes seconds: it gets one grouping per two sizes.
LARGE_OPS = 50_000

# m-SCT's linear programs take 0.7 s for 22,000 ops; larger graphs need the time more.
MAX_SCT_OPS = 30_000

# A slot that tries fewer moves per chain is not worth the while, ...
MIN_SLOT_TRIALS = 400

# ... nor one that lasts less than this many times as long as making its levels.
MIN_SLOT_LEVELS = 3.0
LEVEL_SECONDS_PER_OP = 4e-5

# Fusing is of use only if it leaves at most this share of the ops.
MOST_FUSED = 0.75

ROUNDS = (
    Round(16, is_fused=True, weight=0.75),
    Round(1, is_fused=True, weight=2.25),
    Round(1, weight=3.0),
)

# What of the policy is a number, for its state.
_NUMBERS = ("_whole", "_num_trials", "_plan_number", "_slot_number", "_num_exchanges", "_burst")


@dataclasses.dataclass(frozen=True)
class MultilevelConfig:
    """How the chains anneal.

    The figures behind the defaults: `tfplace/docs/decisions/`, 017-annealing.md to 019-roles.md.

    Attributes:
      level_sizes: groups per level, coarse to fine; colocation units come last. A level that
        the graph is too small for is left out.
      kind_weights: [K] how often each kind of move is drawn, in the order of the chain's kinds.
      rounds: how the time is shared out, where there is enough of it.
      hot, cold: temperature at the start and end of a slot, as a share of the step time:
        exp(-ln(new / old) / temperature) is the chance to take a worse placement. Both rise,
        `hot` up to `hottest`, where fewer than `full_scale_units` units can be moved.
      focus: width in levels of the bell that says how often each level is drawn; its middle
        moves from the coarsest to the finest level during a slot.
      burst_seconds: what a proposal takes, about.
      burst_trials: simulations of a chain per proposal where trials are limited, so that the
        result doesn't depend on the clock.
      exchanges: how often in a round of one candidate the worse chains take over the best one's
        placement.
      overflow_weight: what a device's worth of missing memory adds, in step times.
    """

    level_sizes: Sequence[int] = (16, 24, 64, 96, 256, 384, 1024)
    kind_weights: Sequence[float] = (0.3, 0.2, 0.1, 0.15, 0.1, 0.15, 0.03)
    rounds: Sequence[Round] = ROUNDS
    hot: float = 0.004
    hottest: float = 0.1
    cold: float = 0.0002
    full_scale_units: int = 500
    focus: float = 1.2
    burst_seconds: float = 0.2
    burst_trials: int = 50
    exchanges: int = 8
    overflow_weight: float = 10.0


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A placement of the ground that the round is on, and what it is worth there."""

    device_of_op: IntArray
    rank: Rank


class Multilevel:
    """Anneals many short walks, the best of them longer, and reports each improvement.

    The first proposals are the starts: those handed in, one device, m-TOPO, m-ETF, minimum cuts,
    HEFT, and m-SCT for graphs it can handle. Then each proposal is a burst: compiled chains, one
    per core, run for about a fifth of a second, their simulations count as trials, and what is
    the best so far is proposed if it is new. The rounds begin on the fused problem, which takes a
    third of the time, and end on the whole one. How long to cool is known from what is left,
    which the search says.

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
            config = dataclasses.replace(config, level_sizes=config.level_sizes[::2])
        self._config = config
        self._usable = problem.usable_bytes()
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
        self._best_rank: Rank = (True, math.inf)
        self._seconds_left = math.inf
        self._trials_left: int | None = None
        self._whole = 0.0  # what was left when annealing began, in trials or seconds
        self._num_free = 1
        self._fused: FusedProblem | None = None
        self._grounds: dict[bool, Ground] = {}  # by whether it is fused
        self._rounds: list[Round] = []
        self._slots: list[Slot] = []
        self._plan_number = 0
        self._slot_number = -1
        self._candidates: list[_Candidate] = []  # of this round
        self._results: list[_Candidate] = []  # of its slots that are done
        self._walks: list[Walk] = []
        self._claimed: Rank = (True, math.inf)  # of the best fused placement proposed
        self._num_trials = 0
        self._num_ranked = 0  # simulations that no burst has counted yet
        self._num_exchanges = 0
        self._burst = 1

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        """Told before each proposal how much is left; trials decide where they are limited."""
        self._seconds_left, self._trials_left = seconds_left, trials_left

    def propose(self) -> Proposal | None:
        """The starts first; then bursts of annealing; None if no op is free."""
        if self._starts:
            return Proposal(self._starts.pop(0)())
        if not self._slots and not self._prepare():
            return None
        done = self._done()
        number = next(n for n, slot in enumerate(self._slots) if done < slot.last or slot.last == 1)
        if number != self._slot_number:
            self._begin_slot(number)
        slot = self._slots[number]
        done_of_slot = min((done - slot.first) / (slot.last - slot.first), 1.0)
        num_trials = self._run_burst(done_of_slot) + self._num_ranked
        self._num_ranked = 0
        self._exchange(done_of_slot)
        return Burst(self._news(), num_trials)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes what starts and news of the bursts are worth."""
        for placement, outcome in zip(proposal.device_of_op, outcomes, strict=True):
            rank = self._rank_of(outcome)
            if self._best is None or rank < self._best_rank:
                self._best, self._best_rank = placement.copy(), rank
        return {"best_energy": self._best_rank[1]}

    def state(self) -> Snapshot:
        """Walks with their random numbers, candidates, the best, and how far annealing is."""
        state = {
            "num_starts": np.array(len(self._starts)),
            "numbers": np.array([float(getattr(self, name)) for name in _NUMBERS]),
            "ranks": np.array([self._best_rank, self._claimed], dtype=np.float64),
            "num_chains": np.array(len(self._walks)),
        }
        if self._best is not None:
            state["best"] = self._best
        for name, candidates in (("candidates", self._candidates), ("results", self._results)):
            state[f"{name}/ranks"] = np.array([each.rank for each in candidates], dtype=np.float64)
            state[f"{name}/devices"] = np.array([each.device_of_op for each in candidates])
        for number, walk in enumerate(self._walks):
            state |= {f"chain{number}/{name}": array for name, array in walk.state().items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken; the levels are made again, with the seeds of the slot.

        Raises:
          ValueError: the arrays are of another problem.
        """
        self._starts = self._starts[len(self._starts) - int(state["num_starts"]) :]
        self._best = state.get("best")
        self._best_rank, self._claimed = (_rank(row) for row in state["ranks"])
        numbers = dict(zip(_NUMBERS, state["numbers"].tolist(), strict=True))
        count = int(state["num_chains"])
        if count:
            self._prepare(count, int(numbers["_plan_number"]))
        for name, number in numbers.items():
            setattr(self, name, type(getattr(self, name))(number))
        for name in ("candidates", "results"):
            pairs = zip(state[f"{name}/devices"], state[f"{name}/ranks"], strict=True)
            setattr(self, f"_{name}", [_Candidate(each, _rank(row)) for each, row in pairs])
        if count:
            self._walks = self._new_walks(self._slot_number, count)
        for number, (walk, levels) in enumerate(
            zip(self._walks, self._new_levels(self._slot_number), strict=True)
        ):
            prefix = f"chain{number}/"
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            walk.set_state(own, levels)

    def _prepare(self, count: int | None = None, plan_number: int | None = None) -> bool:
        """The grounds and the slots; False if nothing can be moved."""
        free = self._problem.allowed().sum(axis=1) > 1
        if self._best is None or not free.any() or not math.isfinite(self._best_rank[1]):
            return False
        if count is None:
            count = self._num_chains if self._trials_left is None else TRIAL_CHAINS
        self._num_free = len(np.unique(colocation_units(self._problem.graph).group_of_op[free]))
        self._whole = self._left()
        self._grounds = {False: Ground(self._problem)}
        if self._problem.executor is None and any(each.is_fused for each in self._config.rounds):
            fused = fused_problem(self._problem)
            if fused.problem.num_ops <= MOST_FUSED * self._problem.num_ops:
                self._fused, self._grounds[True] = fused, Ground(fused.problem)
        rounds = [
            dataclasses.replace(each, is_fused=each.is_fused and True in self._grounds)
            for each in self._config.rounds
        ]
        found = plans(rounds)
        if plan_number is None:
            plan_number = found.index(
                longest_plan(rounds, count, self._num_affordable(count), self._least_slots())
            )
        self._plan_number, self._rounds = plan_number, found[plan_number]
        self._slots = slots_of(self._rounds, count)
        self._walks = self._new_walks(0, count)
        return True

    def _num_affordable(self, num_chains: int) -> float:
        """What is left, in seconds, or in trials of a chain where these are limited."""
        if self._trials_left is not None:
            return self._trials_left / num_chains
        return CYCLE_TRIALS / num_chains if math.isinf(self._whole) else self._whole

    def _least_slots(self) -> dict[bool, float]:
        """How long a slot lasts at least, in the same unit, by whether it is fused."""
        if self._trials_left is not None or math.isinf(self._whole):
            return dict.fromkeys((False, True), float(MIN_SLOT_TRIALS))
        assert self._best is not None
        least = {}
        for is_fused, ground in self._grounds.items():
            placement = self._on_ground(self._best, is_fused)
            ground.rank(placement, 0.0)  # compiles
            began = time.monotonic()
            ground.rank(placement, 0.0)
            trials = MIN_SLOT_TRIALS * (time.monotonic() - began)
            levels = MIN_SLOT_LEVELS * LEVEL_SECONDS_PER_OP * ground.problem.num_ops
            least[is_fused] = trials + levels
        return least

    def _on_ground(self, device_of_op: IntArray, is_fused: bool) -> IntArray:
        """A placement of the whole problem as the ground has it."""
        if not is_fused:
            return device_of_op
        assert self._fused is not None
        return self._fused.reduce(device_of_op)

    def _whole_placement(self, device_of_op: IntArray, is_fused: bool) -> IntArray:
        """A placement of a ground as one of the whole problem."""
        if not is_fused:
            return device_of_op
        assert self._fused is not None
        return self._fused.expand(device_of_op)

    def _left(self) -> float:
        return self._seconds_left if self._trials_left is None else float(self._trials_left)

    def _done(self) -> float:
        """Share of the annealing that is done; without any limit it begins anew now and then."""
        if math.isinf(self._whole):
            return self._num_trials % CYCLE_TRIALS / CYCLE_TRIALS
        return 1.0 - self._left() / max(self._whole, 1e-9)

    def _is_fused(self, slot_number: int) -> bool:
        return self._rounds[self._slots[slot_number].round_number].is_fused

    def _begin_slot(self, number: int) -> None:
        """Each walk takes a candidate and new levels; a new round takes the best of the last."""
        before = self._slots[self._slot_number] if self._slot_number >= 0 else None
        slot = self._slots[number]
        self._results += [_Candidate(walk.best(), walk.best_rank) for walk in self._walks]
        if before is None or before.round_number != slot.round_number:
            self._choose_candidates(number, is_first=before is None or number < self._slot_number)
        if before is None or self._is_fused(self._slot_number) != self._is_fused(number):
            self._walks = self._new_walks(number, len(self._walks))
        self._slot_number, self._num_exchanges = number, 0
        for index, levels in enumerate(self._new_levels(number)):
            chosen = self._candidates[
                (slot.number * len(self._walks) + index) % len(self._candidates)
            ]
            self._walks[index].begin(levels, chosen.device_of_op, chosen.rank)

    def _choose_candidates(self, number: int, is_first: bool) -> None:
        """The best results of the round before, or the best start, on the ground of this one."""
        assert self._best is not None
        is_fused = self._is_fused(number)
        if is_first:
            found = [self._ranked(self._on_ground(self._best, is_fused), is_fused)]
        else:
            found = sorted(self._results, key=lambda each: each.rank)
            was_fused = self._is_fused(self._slot_number)
            found = found[: self._rounds[self._slots[number].round_number].num_candidates]
            if was_fused and not is_fused:
                found = [
                    self._ranked(self._whole_placement(each.device_of_op, True), False)
                    for each in found
                ]
                found.append(_Candidate(self._best, self._best_rank))
                found.sort(key=lambda each: each.rank)
        count = self._rounds[self._slots[number].round_number].num_candidates
        self._candidates, self._results = found[:count], []

    def _ranked(self, device_of_op: IntArray, is_fused: bool) -> _Candidate:
        """What a placement is worth on a ground, for one simulation."""
        self._num_ranked += 1
        rank = self._grounds[is_fused].rank(device_of_op, self._config.overflow_weight)
        return _Candidate(device_of_op, rank)

    def _new_walks(self, slot_number: int, count: int) -> list[Walk]:
        is_fused = self._is_fused(slot_number)
        first = self._seed * 1000 + 500 * is_fused
        return [Walk(self._grounds[is_fused], first + number) for number in range(count)]

    def _new_levels(self, slot_number: int) -> list[Levels]:
        """Levels of a slot for each walk."""
        if not self._walks:
            return []
        count = len(self._walks)
        ground = self._grounds[self._is_fused(slot_number)]
        sizes, first = self._config.level_sizes, self._seed * 1000 + slot_number * count
        slot = self._slots[slot_number]

        def levels(index: int) -> Levels:
            # Every other run moves what repeats itself as one: either way finds what the other
            # misses, and where all walks go on from the best, that has both.
            by_role = (slot.number * count + index + slot.round_number) % 2 == 1
            return ground.levels(sizes, first + index, by_role)

        return list(self._pool.map(levels, range(count)))

    def _run_burst(self, done: float) -> int:
        """Runs the walks side by side; returns how many trials that took."""
        walks, count = self._walks, self._burst
        if self._trials_left is not None:
            # One trial stays for the evaluation of what is found.
            left = max(self._trials_left - 1 - self._num_ranked, 1)
            walks = walks[:left]
            count = min(self._config.burst_trials, left // len(walks))
        stretch = self._stretch(done, count)
        began = time.monotonic()
        runs = [self._pool.submit(walk.run, stretch) for walk in walks]
        for run in runs:
            run.result()
        if self._trials_left is None:
            seconds = max(time.monotonic() - began, 1e-6)
            wanted = min(self._config.burst_seconds, max(self._seconds_left, 0.01)) / seconds
            self._burst = max(int(count * min(wanted, 4.0)), 1)
        self._num_trials += count * len(walks)
        return count * len(walks)

    def _stretch(self, done: float, num_trials: int) -> Stretch:
        """What comes next of a slot of which so much is done."""
        config = self._config
        # The fewer there are to move, the more each move changes.
        scale = max(config.full_scale_units / self._num_free, 1.0)
        hot = self._rounds[self._slots[self._slot_number].round_number].hot
        return Stretch(
            kind_weights=config.kind_weights,
            focus=done,
            width=config.focus,
            temperature=min(config.hot * hot * scale, config.hottest)
            * (config.cold / config.hot) ** done,
            overflow_weight=config.overflow_weight,
            num_trials=num_trials,
        )

    def _exchange(self, done: float) -> None:
        """Now and then all walks go on from the best of their placements, if that is the round."""
        turn = int(done * (self._config.exchanges + 1))
        if len(self._candidates) == 1 and turn > self._num_exchanges:
            self._num_exchanges = turn
            best = min(self._walks, key=lambda walk: walk.current_rank)
            for walk in self._walks:
                if walk is not best:
                    walk.copy_current(best)

    def _news(self) -> IntArray:
        """i4[0 or 1, N]: the best of all walks, if it is new."""
        best = min(self._walks, key=lambda walk: walk.best_rank)
        is_fused = self._is_fused(self._slot_number)
        if best.best_rank >= (self._claimed if is_fused else self._best_rank):
            return np.empty((0, self._problem.num_ops), dtype=np.int32)
        if is_fused:
            self._claimed = best.best_rank
        return self._whole_placement(best.best(), is_fused)[None]

    def _rank_of(self, outcome: Outcome) -> Rank:
        if not isinstance(outcome, Infeasible):
            return False, outcome.step_seconds
        if outcome.reason != "memory" or not outcome.peak_bytes:
            return True, math.inf
        weight = self._config.overflow_weight
        return True, rank_of(outcome.step_seconds, outcome.peak_bytes, self._usable, weight)[1]


def _rank(row: np.ndarray) -> Rank:
    infeasible, energy = row.tolist()
    return bool(infeasible), energy

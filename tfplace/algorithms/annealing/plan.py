"""How the time of an annealing is shared out: rounds of fewer and fewer, longer and longer runs.

Two runs from the same placement end up to a tenth apart, so many short ones are made and the
best go on: successive halving (Karnin, Koren, Somekh 2013; Jamieson and Talwalkar 2016).
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

LEAST_REST = 0.01
"""The share of a budget that a continued search counts as left, though it used up all of it."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a search has left for annealing.

    Attributes:
      seconds: of wall time; inf without a limit.
      trials: simulations; None without a limit. With one, trials decide and the clock is not
        looked at, so that the same seed gives the same result on any machine.
    """

    seconds: float = math.inf
    trials: int | None = None

    @property
    def has_limit(self) -> bool:
        return self.trials is not None or math.isfinite(self.seconds)

    def share_used(self, left: "Budget") -> float:
        """0 to 1: how much of this budget is used up when `left` is left of it."""
        if self.trials is not None and left.trials is not None:
            share = 1.0 - left.trials / max(self.trials, 1e-9)
        else:
            share = 1.0 - left.seconds / max(self.seconds, 1e-9)
        # A search that goes on later may have been given more than there was at first.
        return max(share, 0.0)

    def as_rest_after(self, share_used: float) -> "Budget":
        """The budget of which so much is used up when this one is left."""
        rest = max(1.0 - share_used, LEAST_REST)
        trials = None if self.trials is None else math.ceil(self.trials / rest)
        return Budget(self.seconds / rest, trials)


@dataclasses.dataclass(frozen=True)
class Round:
    """Runs of equal length, coarse to fine, each from a candidate of its own.

    Attributes:
      num_candidates: placements that go on from the round before.
      is_fused: whether it anneals the fused problem, which is quicker to simulate, but not exact.
      weight: share of the time, over the sum of all rounds' weights.
    """

    num_candidates: int
    is_fused: bool = False
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class RunSlot:
    """One run of every chain, side by side, each with one candidate."""

    round_number: int  # of its round
    number: int  # of the slot within its round: chain c of C takes candidate number * C + c
    first: float  # share of the whole annealing after which it begins, 0 to 1
    last: float  # share after which it ends


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which runs are made, one after another, and how long each of them lasts."""

    rounds: Sequence[Round]  # in their order
    slots: Sequence[RunSlot]  # of all rounds, in their order; together they last from 0 to 1

    def slot_number(self, share_used: float) -> int:
        """The slot that is due when so much of the budget is used; the last one beyond the end."""
        due = (number for number, slot in enumerate(self.slots) if share_used < slot.last)
        return next(due, len(self.slots) - 1)

    def round_of(self, slot_number: int) -> Round:
        return self.rounds[self.slots[slot_number].round_number]

    def has_room(self, amount: float, least: Mapping[bool, float]) -> bool:
        """Whether all slots, of that length together, are each as long as `least` wants.

        Both in any unit; `least` by whether a slot is fused.
        """
        return all(
            (slot.last - slot.first) * amount >= least[self.rounds[slot.round_number].is_fused]
            for slot in self.slots
        )


def plan_of(rounds: Sequence[Round], num_chains: int) -> Plan:
    """The slots that rounds need with C chains: as many as candidates need turns."""
    counts = [math.ceil(each.num_candidates / num_chains) for each in rounds]
    whole = sum(each.weight for each in rounds)
    shares = [each.weight / whole / count for each, count in zip(rounds, counts, strict=True)]
    numbers = [(index, number) for index, count in enumerate(counts) for number in range(count)]
    ends = [0.0, *itertools.accumulate(shares[index] for index, _ in numbers)]
    ends[-1] = 1.0
    limits = itertools.pairwise(ends)
    slots = [RunSlot(*pair, *limit) for pair, limit in zip(numbers, limits, strict=True)]
    return Plan(tuple(rounds), slots)


def plans(rounds: Sequence[Round], num_chains: int) -> list[Plan]:
    """Shorter and shorter plans for budgets that the wanted rounds are too long for.

    The wanted rounds; the same with half, a quarter, ... of the candidates until each round has
    one; if some rounds are fused and some are not, one run of each kind; a single run. The single
    run is fused if any of the wanted rounds is: that little time is best spent on quick trials.
    """

    def halved(each: Round) -> Round:
        return dataclasses.replace(each, num_candidates=max(each.num_candidates // 2, 1))

    shrinking = [list(rounds)]
    while max(each.num_candidates for each in shrinking[-1]) > 1:
        shrinking.append([halved(each) for each in shrinking[-1]])
    kinds = sorted({each.is_fused for each in rounds}, reverse=True)
    if len(kinds) > 1:
        shrinking.append([Round(1, kind) for kind in kinds])
    shrinking.append([Round(1, kinds[0])])
    return [plan_of(each, num_chains) for each in shrinking]


def fullest_plan(candidates: Sequence[Plan], amount: float, least: Mapping[bool, float]) -> int:
    """The number of the first plan that has room; of the last one if none has."""
    fitting = (number for number, plan in enumerate(candidates) if plan.has_room(amount, least))
    return next(fitting, len(candidates) - 1)

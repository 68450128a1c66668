"""How the time of an annealing is shared out: rounds of fewer and fewer, longer and longer runs.

Two runs from the same placement end up to a tenth apart, so many short ones are made and the
best go on: successive halving (Karnin, Koren, Somekh 2013; Jamieson and Talwalkar 2016).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Round:
    """Attributes:
    num_candidates: placements that go on, each through all levels, coarse to fine.
    is_fused: whether on the fused problem, which is quicker and not exact.
    weight: share of the time, over the sum of all rounds' weights.
    hot: temperature at the start, as a share of the configured one.
    """

    num_candidates: int
    is_fused: bool = False
    weight: float = 1.0
    hot: float = 1.0


@dataclasses.dataclass(frozen=True)
class Slot:
    """Each chain's run with one candidate.

    Attributes:
      round_number: of its round.
      number: of the slot within its round: chain c of C takes candidate number * C + c.
      first, last: where it begins and ends in the whole, 0 to 1.
    """

    round_number: int
    number: int
    first: float
    last: float


def slots_of(rounds: Sequence[Round], num_chains: int) -> list[Slot]:
    """The slots of all rounds, one after another."""
    counts = [math.ceil(each.num_candidates / num_chains) for each in rounds]
    whole = sum(each.weight for each in rounds)
    shares = [each.weight / whole / count for each, count in zip(rounds, counts, strict=True)]
    numbers = [(index, number) for index, count in enumerate(counts) for number in range(count)]
    ends = [0.0, *itertools.accumulate(shares[index] for index, _ in numbers)]
    ends[-1] = 1.0
    return [
        Slot(*pair, *limits) for pair, limits in zip(numbers, itertools.pairwise(ends), strict=True)
    ]


def plans(rounds: Sequence[Round]) -> list[list[Round]]:
    """Ever shorter ways to go: half the candidates each time, then one run of each kind, then one.

    The last one is exact if any round is, unless fused runs were to come before it: then time is
    too short for anything but one of these.
    """
    found = [list(rounds)]
    while max(each.num_candidates for each in found[-1]) > 1:
        found.append(
            [
                dataclasses.replace(each, num_candidates=max(each.num_candidates // 2, 1))
                for each in found[-1]
            ]
        )
    kinds = sorted({each.is_fused for each in rounds}, reverse=True)
    if len(kinds) > 1:
        found.append([Round(1, kind) for kind in kinds])
    found.append([Round(1, kinds[0])])
    return found


def longest_plan(
    rounds: Sequence[Round], num_chains: int, seconds: float, least: dict[bool, float]
) -> list[Round]:
    """The fullest plan each of whose slots has its least length, or the shortest one.

    Args:
      rounds: what is wanted.
      num_chains: C.
      seconds: length of the whole, in any unit.
      least: length of a slot in that unit, by whether it is fused.
    """
    found = plans(rounds)
    for plan in found:
        slots = slots_of(plan, num_chains)
        if all(
            (slot.last - slot.first) * seconds >= least[plan[slot.round_number].is_fused]
            for slot in slots
        ):
            return plan
    return found[-1]

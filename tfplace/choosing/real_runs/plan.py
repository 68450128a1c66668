"""What a loop of rounds measures, and what it learns from that."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Infeasible, Problem
from tfplace.choosing.baselines import Plan
from tfplace.choosing.run_results import Corrections, Round

AnyPlan = TypeVar("AnyPlan", bound=Plan)


def distinct(plans: Sequence[AnyPlan]) -> list[AnyPlan]:
    """The first of equal placements, in order."""
    first: dict[bytes, AnyPlan] = {}
    for plan in plans:
        first.setdefault(plan.key, plan)
    return list(first.values())


def with_own_names(plans: Sequence[Plan]) -> list[Plan]:
    """The same placements, equal ones under the first one's name, others never under one name."""
    count: collections.Counter[str] = collections.Counter()
    names: dict[bytes, str] = {}
    for plan in plans:
        if plan.key not in names:
            count[plan.name] += 1
            number = count[plan.name]
            names[plan.key] = plan.name if number == 1 else f"{plan.name} ({number})"
    return [Plan(names[plan.key], plan.device_of_op) for plan in plans]


Runs = Sequence[FloatArray | Infeasible]
Measure = Callable[[Sequence[Plan]], Runs]
"""f8[runs] of each placement, stepped in turn; or why one could not run."""
Search = Callable[[Problem, IntArray, int], IntArray | None]
"""The best placement i4[N] found from starts i4[B, N] with a seed; None where there is none."""


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """When a loop ends, and what a round measures.

    Attributes:
      max_rounds: at most.
      max_idle: rounds in a row without a gain, after which it ends.
      num_drawn: placements of a round that were found on plausible machines, beside that of the
        most plausible one.
      max_drawn: plausible machines that are searched on for them.
      num_known: of the known placements, those of the best corrected prediction, in a round.
      num_again: of the fastest placements that are measured again in each round.
      num_starts: of the fastest placements that searches begin with, beside the known ones.
      least_gain: a share of the step time that is worth another round.
      seed: of machines and searches.
    """

    max_rounds: int = 6
    max_idle: int = 2
    num_drawn: int = 2
    max_drawn: int = 4
    num_known: int = 2
    num_again: int = 2
    num_starts: int = 4
    least_gain: float = 0.01
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a loop came to.

    Attributes:
      rounds: in order.
      corrections: by all of them.
      seconds: [(placement, its step on the machine as it was last)], the fastest first.
      failed: [(placement, why it could not run)].
    """

    rounds: Sequence[Round]
    corrections: Corrections
    seconds: Sequence[tuple[Plan, float]]
    failed: Sequence[tuple[Plan, Infeasible]]

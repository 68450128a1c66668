"""What the first search may take of a budget beside the real runs that follow it."""

import dataclasses
import math

from tfplace.budget import PARTS
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel

FIRST_ROUND = StepLimits(warmup_steps=1, min_steps=5, max_steps=15, budget_seconds=15.0)


def has_finalists(prepared: PreparedModel, options: OptimizeOptions) -> bool:
    """Whether real runs may decide after a search in the simulator."""
    return prepared.is_present and prepared.problem.num_devices > 1 and options.evaluator == "auto"


def search_beside(
    options: OptimizeOptions, seconds: float, left: float = math.inf, least_left: float = math.inf
) -> OptimizeOptions:
    """The options with a shorter first search where real runs would else have too little time.

    A search in 45 % of a budget takes twice the seconds off it that getting to know the machine
    took, so that both end as if nothing had been measured, but at most half of it. Where the
    comparison with one device would still not fit, the search gets what is left, or a third of the
    budget as far as few steps of each still fit, but not less than a fifth: reading numbers of
    shards uses up all that it gets.

    Args:
      options: with the whole budget.
      seconds: what getting to know the machine took.
      left: until that comparison has to begin, roughly; where that has long been over, no search
        is short enough.
      least_left: the same where it makes no more steps than it has to.
    """
    budget = options.budget_seconds
    beside_rounds = max(budget - 2.0 * seconds, PARTS["first_search_shortened"].of(budget))
    if left > -PARTS["long_over"].of(budget):
        least = min(least_left, PARTS["first_search_beside_few"].of(budget))
        squeezed = PARTS["first_search_squeezed"].of(budget)
        beside_rounds = min(beside_rounds, max(left, least, squeezed))
    return dataclasses.replace(options, budget_seconds=beside_rounds)

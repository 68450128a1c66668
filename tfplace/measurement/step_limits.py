"""How many steps of a run are made, and how long they may take."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class StepLimits:
    """How many steps to make, and how long to wait for them.

    Attributes:
      warmup_steps: steps after the first that are not counted, >= 0.
      min_steps: steps to count even if they exceed the budget, >= 1; the contract, section 5,
        wants 10 where a step time is reported.
      least_steps: with fewer a run has no time; of min_steps, where all_seconds are too short for
        these.
      max_steps: steps to count at most.
      budget_seconds: once min_steps are counted, no step starts after this time.
      timeout_seconds: the longest that one step may take.
      prepare_timeout_seconds: the longest that import, initialization and first step may take.
      all_seconds: the longest that all of it may take, from the start of the processes on.
      seed: of the values of variables that nothing initialises, and of what is drawn besides.
    """

    warmup_steps: int = 3
    min_steps: int = 10
    least_steps: int = 5
    max_steps: int = 100
    budget_seconds: float = 30.0
    timeout_seconds: float = 120.0
    prepare_timeout_seconds: float = 300.0
    all_seconds: float = math.inf
    seed: int = 0


def exactly(num_steps: int, warmup_steps: int, seed: int = 0) -> StepLimits:
    """Limits for a fixed number of steps."""
    return StepLimits(warmup_steps, min_steps=num_steps, max_steps=num_steps, seed=seed)

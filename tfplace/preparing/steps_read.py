"""One step as it was read and priced in several numbers of shards."""

import dataclasses
from collections.abc import Mapping

from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class StepsRead:
    """What --shards=auto has come by.

    Attributes:
      batch: entries of the batch.
      problems: {number of shards: the step's problem on all devices}; 1 is among them.
      is_priced: whether all prices are computed; times of real runs obey no rule.
      left_whole: how many ops are whole in all of them that could be split.
    """

    batch: int
    problems: Mapping[int, Problem]
    is_priced: bool
    left_whole: int = 0

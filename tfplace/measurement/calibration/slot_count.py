"""How many ops a device really runs at once."""

from __future__ import annotations

import math
from collections.abc import Mapping


def choose_slots(seconds_of_count: Mapping[int, float]) -> int:
    """The number of slots s for which ceil(k / s) rounds explain best what k equal ops take.

    Ops that use several cores themselves gain nothing side by side: then it is 1, whatever the
    number of cores.

    Args:
      seconds_of_count: {k: seconds of k independent equal ops}; 1 is among the k.

    Returns:
      The s of 1 to the largest k with the least sum of |log(predicted / measured)|; the smallest
      such s.
    """
    alone = seconds_of_count[1]

    def error(slots: int) -> float:
        return sum(
            abs(math.log(alone * math.ceil(count / slots) / seconds))
            for count, seconds in seconds_of_count.items()
        )

    return min(range(1, max(seconds_of_count) + 1), key=lambda slots: (error(slots), slots))

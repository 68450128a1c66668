"""Which numbers of shards are worth a try: 1, 2, 4, ... up to twice the devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

HOPELESS, HOPELESS_BETWEEN = 1.25, 2.0
"""A number so many times as slow as the best: what lies beyond it is not tried; nor, where it is
even slower, what lies between the two. Where the unsplit step is the best, HOPELESS does."""
HOPELESS_WORK = 0.9
"""Nor is a number whose work alone, spread over all devices, takes this share of the best step."""
HOPEFUL_WORK = 0.6
"""What takes less than this share is tried though it lies between the best and a slow one: of moe,
on eight K80, the unsplit step takes 1.24 s, eight shards 1.31 s, two, of 0.44 s of work, 0.97 s."""
ABOUT = 1.15
"""Steps promise about as much where one promises at most so many times as long as the other: before
they are read, that is half of what they take anyway."""


def shard_counts(num_devices: int) -> list[int]:
    """Ascending; without 1, which is the step as it is.

    Args:
      num_devices: that work is spread over.
    """
    powers = {2**k for k in range(1, (2 * num_devices).bit_length()) if 2**k <= 2 * num_devices}
    return sorted({*powers, num_devices} - {1})


def first_count(device_seconds: Sequence[float]) -> int:
    """A shard for each device, where slower ones count as parts of the fastest.

    Two V100 and two K80 are little more than two devices: there two shards were best on
    transformer, inception_v3 and moe, and reading four first took the time to find that.

    Args:
      device_seconds: [D] what the whole step's work takes on each device that it is spread over.
    """
    fastest = min(device_seconds)
    if not 0.0 < fastest < math.inf:
        return len(device_seconds)
    together = sum(fastest / each for each in device_seconds)
    counts = shard_counts(len(device_seconds))
    return min(counts, key=lambda each: (abs(math.log2(each / together)), -each))


def smaller_count(first: int, least: Mapping[int, float]) -> int:
    """What to begin with where the first number takes too long to be read; that, if none is known.

    A step takes its work at least, and the unsplit one's bound hardly falls faster than 1 / M. Of
    the numbers that promise about as much the least: it is read soonest.

    Args:
      first: the number.
      least: {number of shards: what its work alone takes; 1: the unsplit step's bound}.
    """
    hoped = {each: max(least[each], least.get(1, 0.0) / each) for each in least if 1 < each < first}
    limit = ABOUT * min(hoped.values(), default=0.0)
    return min((each for each in hoped if hoped[each] <= limit), default=first)


def next_count(
    num_devices: int, tried: Mapping[int, float], passed: Collection[int], first: int
) -> int | None:
    """The number to try next, after the first one what is nearest to the best.

    Args:
      num_devices: that work is spread over.
      tried: {number of shards: step seconds}, 1 among them.
      passed: numbers that are not tried.
      first: see first_count.
    """
    left = [each for each in shard_counts(num_devices) if each not in {*tried, *passed}]
    if first in left:
        return first
    best = math.log2(min(tried, key=tried.__getitem__))
    return min(left, key=lambda each: (abs(math.log2(each) - best), each), default=None)


def why_not(
    shards: int,
    tried: Mapping[int, float],
    passed: Collection[int] = (),
    least: Mapping[int, float] | None = None,
) -> str:
    """Why a number is not worth a try, by what was found for others; empty where it is.

    Args:
      shards: the number.
      tried: {number of shards: step seconds}.
      passed: numbers that are not tried.
      least: {number of shards: what its work alone takes}, as far as it is known.
    """
    least = least or {}
    best = min(tried, key=tried.__getitem__)
    if not math.isfinite(tried[best]):
        return ""
    if tried[best] == 0.0:
        return f"not tried: with {best} a step takes no time"
    if (share := least.get(shards, 0.0) / tried[best]) > HOPELESS_WORK:
        return (
            "not tried: spread over all devices, its work alone takes "
            f"{_times(share)} times as long as a step with {best}"
        )
    between = HOPELESS if best == 1 else HOPELESS_BETWEEN
    if 0.0 < share < HOPEFUL_WORK:
        between = math.inf
    known = {**{each: least.get(each, 0.0) for each in passed}, **tried}
    for number, seconds in sorted(known.items(), key=lambda pair: abs(pair[0] - shards)):
        slower = seconds / tried[best]
        is_beyond = best < number < shards or shards < number < best
        is_between = best < shards < number or number < shards < best
        if (is_beyond and slower > HOPELESS) or (is_between and slower > between):
            times = _times(slower)
            return f"not tried: with {number} a step takes {times} times as long as with {best}"
    return ""


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 10.0 else f"{factor:,.0f}"

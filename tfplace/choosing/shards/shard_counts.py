"""Which numbers of shards are worth a try, 1, 2, 4, ..., and what came of each of them."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.ties import TIE
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.preparing.prepare import PreparedModel
from tfplace.preparing.steps_read import StepsRead
from tfplace.search.trial_log import SearchResult

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
    """Ascending; without 1, which is the step as it is."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class ShardsFound:
    """A number of shards, its problem, and what its last search has found.

    Attributes:
      in_order: seconds of the best step that was found with an order; inf where none was tried.
    """

    shards: int
    prepared: PreparedModel
    searched: Searched
    in_order: float = math.inf

    @property
    def key(self) -> float:
        """What NumbersFound knows it by: pieces of weights behind as many shards."""
        return self.shards + 0.5 * self.cuts_weights

    @property
    def cuts_weights(self) -> bool:
        """Whether its weights are cut, not its batch."""
        split = self.prepared.split
        return split is not None and bool(split.decisions.pieces)

    @property
    def step_seconds(self) -> float:
        """The best predicted step; inf where nothing can run."""
        best = self.searched.best
        return self.in_order if best is None else min(best.step_seconds, self.in_order)

    def interrupted(self) -> "ShardsFound":
        """The same, after a signal."""
        result = dataclasses.replace(self.searched.result, interrupted=True)
        searched = dataclasses.replace(self.searched, result=result)
        return dataclasses.replace(self, searched=searched)

    def also(self, result: SearchResult, name: str) -> "ShardsFound":
        """The same with what another search has found besides, a candidate of this name."""
        candidates = list(self.searched.candidates)
        if (best := result.best) is not None:
            candidates.append(Candidate(name, best.placement.device_of_op, best.outcome))
        searched = dataclasses.replace(self.searched, candidates=candidates)
        noted = dataclasses.replace(self, searched=searched)
        return noted.interrupted() if result.interrupted else noted

    def told(self) -> TriedShards:
        """The same for the report."""
        single = next(c.step_seconds for c in self.searched.baselines if c.name == "single")
        step = self.step_seconds
        reason = "" if math.isfinite(step) else "no placement was found that can run"
        cut = "weights" if self.cuts_weights else "batch"
        return TriedShards(self.shards, _finite(step), _finite(single), reason, cut)


class NumbersFound:
    """All numbers of shards that a search came by.

    Attributes:
      found: {ShardsFound.key: what was found for it}; 1, the unsplit step, comes first.
      skipped: the numbers that were not tried.
    """

    def __init__(self) -> None:
        self.found: dict[float, ShardsFound] = {}
        self.skipped: list[TriedShards] = []

    @property
    def unsplit(self) -> ShardsFound:
        return self.found[1]

    @property
    def is_interrupted(self) -> bool:
        return any(each.searched.result.interrupted for each in self.found.values())

    @property
    def is_any_known(self) -> bool:
        """Whether anything was found that can run."""
        return any(math.isfinite(each.step_seconds) for each in self.found.values())

    @property
    def is_any_split_known(self) -> bool:
        """Whether anything in several shards was found that can run."""
        return any(math.isfinite(e.step_seconds) for n, e in self.found.items() if n > 1)

    @property
    def winner(self) -> ShardsFound:
        """The fastest; of equals the one with the fewest shards."""
        limit = min(each.step_seconds for each in self.found.values()) * (1.0 + TIE)
        tied = [shards for shards, each in self.found.items() if each.step_seconds <= limit]
        return self.found[min(tied)]

    def fastest_first(self) -> list[ShardsFound]:
        return sorted(self.found.values(), key=lambda each: each.step_seconds)

    def told(self) -> list[TriedShards]:
        """All of them for the report, by number."""
        told = [*(each.told() for each in self.found.values()), *self.skipped]
        return sorted(told, key=lambda each: each.shards)

    def steps_read(self) -> StepsRead | None:
        """All steps that were read, the fastest first; None where none is split, or not alike.

        Of split ones those that leave as many ops whole as the fastest does.
        """
        by_batch = [each for each in self.fastest_first() if not each.cuts_weights]
        steps = {each.shards: each.prepared for each in by_batch}
        splits = [each.split.decisions for each in steps.values() if each.split is not None]
        # A batch of inputs, or of what a step takes its inputs apart into.
        if len({decisions.batch for decisions in splits}) != 1:
            return None
        num_whole = splits[0].num_left_whole
        problems = {
            shards: each.unlimited or each.problem
            for shards, each in steps.items()
            if each.split is None or each.split.decisions.num_left_whole == num_whole
        }
        is_priced = all(each.costs.source == "analytic" for each in steps.values())
        return StepsRead(splits[0].batch, problems, is_priced, num_whole)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None

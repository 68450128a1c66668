"""What a search over numbers of shards keeps of each number."""

from __future__ import annotations

import dataclasses
import math

from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.ties import TIE
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.preparing.prepare import PreparedModel
from tfplace.preparing.steps_read import StepsRead
from tfplace.search.trial_log import SearchResult


@dataclasses.dataclass(frozen=True, eq=False)
class ShardsFound:
    """A number of shards, its problem, and what its last search has found."""

    shards: int
    prepared: PreparedModel
    searched: Searched

    @property
    def step_seconds(self) -> float:
        """The best predicted step; inf where nothing can run."""
        best = self.searched.best
        return math.inf if best is None else best.step_seconds

    def interrupted(self) -> ShardsFound:
        """The same, after a signal."""
        result = dataclasses.replace(self.searched.result, interrupted=True)
        searched = dataclasses.replace(self.searched, result=result)
        return dataclasses.replace(self, searched=searched)

    def also(self, result: SearchResult, name: str) -> ShardsFound:
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
        return TriedShards(self.shards, _finite(step), _finite(single), reason)


class NumbersFound:
    """All numbers of shards that a search came by.

    Attributes:
      found: {number of shards: what was found for it}; 1, the unsplit step, comes first.
      skipped: the numbers that were not tried.
    """

    def __init__(self) -> None:
        self.found: dict[int, ShardsFound] = {}
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
        steps = {each.shards: each.prepared for each in self.fastest_first()}
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

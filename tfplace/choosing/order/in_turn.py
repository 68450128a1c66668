"""`--shards=auto` where nothing fits: the shards of a device one after another, in order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from graphs.errors import MemoryLimitError
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.memory_limit import lacking_bytes, nearest, why_nothing_fits
from tfplace.choosing.order.advice import counts_in_turn
from tfplace.choosing.order.in_order import in_order
from tfplace.choosing.order.model_order import EDGES, with_order
from tfplace.choosing.shards_found import ShardsFound


def counts_that_may_fit(unsplit: ShardsFound) -> Sequence[int]:
    """The numbers of shards to try, ascending, by the unsplit placement that lacks least."""
    problem = unsplit.prepared.problem
    candidate = nearest(_everything(unsplit), problem)
    if candidate is None:
        return ()
    return counts_in_turn(problem, candidate.device_of_op, candidate.outcome.peak_bytes)


def found_in_order(found: ShardsFound) -> ShardsFound:
    """The same with the order in which its placements hold least."""
    prepared = with_order(found.prepared, EDGES)
    searched = in_order(prepared, found.searched)
    return dataclasses.replace(found, prepared=prepared, searched=searched)


def require_one_that_fits(tried: Sequence[ShardsFound], too_long: Sequence[int]) -> None:
    """Raises MemoryLimitError where shards were tried in order, and nothing fits.

    Args:
      tried: the unsplit step first.
      too_long: numbers of shards that there was no time for.
    """
    ordered = [each for each in tried if each.prepared.order is not None]
    if not ordered or any(math.isfinite(each.step_seconds) for each in tried):
        return
    lacking: dict[int, float] = {}
    for each in sorted(ordered, key=lambda each: each.shards):
        problem = each.prepared.problem
        if (candidate := nearest(_everything(each), problem)) is not None:
            lacking[each.shards] = lacking_bytes(candidate, problem)
    unsplit = tried[0]
    lacking |= dict.fromkeys(too_long, math.inf)
    message = why_nothing_fits(_everything(unsplit), unsplit.prepared.problem, lacking)
    raise MemoryLimitError(message)


def _everything(found: ShardsFound) -> list[Candidate]:
    return [*found.searched.candidates, *found.searched.fewer]

"""What a search has found, judged with the order that each placement gets."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from graphs.problem import Problem
from tfplace.choosing.baselines import GIVEN, Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.memory.within_memory import nothing_fits
from tfplace.choosing.memory_limit import counts_in_turn, lacking_bytes, nearest
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling.model_order import EDGES, ModelOrder, with_order
from tfplace.choosing.shards.shard_counts import ShardsFound
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel

WITHIN, MOST = 1.4, 3
"""Of the best without an order, and so many placements: the others are left as they are, since
hardly any order gains so much, and finding one takes seconds for a large graph."""


def in_order(prepared: PreparedModel, searched: Searched) -> Searched:
    """The same with the outcomes that the placements have in order; baselines stay as they were.

    The given placement stays as the model came, without an order, and so does what is too slow.
    """
    order = prepared.order
    if not isinstance(order, ModelOrder):
        return searched

    everything = searched.everything
    is_worth_it = _worth_it(prepared.problem, [each for each in everything if each.name != GIVEN])
    for candidate in sorted(everything, key=lambda each: each.step_seconds):
        if candidate.name != GIVEN and is_worth_it(candidate):
            order.ordered(prepared, candidate.device_of_op)  # the best first, while there is time

    def each(candidates: Sequence[Candidate]) -> list[Candidate]:
        return [
            dataclasses.replace(
                candidate, outcome=order.ordered(prepared, candidate.device_of_op).outcome
            )
            if candidate.name != GIVEN and is_worth_it(candidate)
            else candidate
            for candidate in candidates
        ]

    return dataclasses.replace(
        searched, candidates=each(searched.candidates), fewer=each(searched.fewer)
    )


def _worth_it(problem: Problem, candidates: Sequence[Candidate]) -> Callable[[Candidate], bool]:
    """Whether a placement is near enough to the best, or to fitting, to look for its order."""

    def lacking(candidate: Candidate) -> float:
        return lacking_bytes(candidate, problem)

    steps = sorted({each.step_seconds for each in candidates})
    limit = min(steps[0] * WITHIN, steps[:MOST][-1])
    most_lacking = sorted({lacking(each) for each in candidates} - {0.0})[:MOST][-1:]

    def is_worth_it(candidate: Candidate) -> bool:
        if math.isfinite(candidate.step_seconds):
            return candidate.step_seconds <= limit
        return lacking(candidate) <= min(most_lacking, default=0.0) < math.inf

    return is_worth_it


def counts_that_may_fit(unsplit: ShardsFound) -> Sequence[int]:
    """The numbers of shards to try, ascending, by the unsplit placement that lacks least."""
    problem = unsplit.prepared.problem
    candidate = nearest(unsplit.searched.everything, problem)
    if candidate is None:
        return ()
    return counts_in_turn(problem, candidate.device_of_op, candidate.outcome.peak_bytes)


def found_in_order(found: ShardsFound, seconds: float = math.inf) -> ShardsFound:
    """The same with the best order of its placements, found in about so many seconds."""
    prepared = with_order(found.prepared, EDGES)
    if isinstance(prepared.order, ModelOrder) and seconds < math.inf:
        prepared.order.end_after(seconds)
    searched = in_order(prepared, found.searched)
    return dataclasses.replace(found, prepared=prepared, searched=searched)


def require_one_that_fits(
    tried: Sequence[ShardsFound], too_long: Sequence[int], options: OptimizeOptions
) -> None:
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
        if (candidate := nearest(each.searched.everything, problem)) is not None:
            lacking[each.shards] = lacking_bytes(candidate, problem)
    unsplit = tried[0]
    lacking |= dict.fromkeys(too_long, math.inf)
    raise nothing_fits(Found(unsplit.prepared, unsplit.searched), options, lacking)

"""Searches for placements whose ready ops start by rank: a plan is a device and a rank for each op.

A placement that was annealed for first come, first served is good for that order, and an order that
is found for it afterwards often gains nothing. So the last part of a budget alternates between two
steps. One takes ranks from the best placement so far, and holds its reads of variables back as its
order does. The other anneals where the ready op of the least rank starts first, and makes an order
of these ranks for what it finds. That counts by a simulation with the order's edges, like all else.
If a first round gains nothing and the best placement has no ranks, the rest of the time goes to a
search without an order, which does better there.
"""

import dataclasses
import math
import time
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from tfplace.algorithms.annealing.config import LARGE_OPS
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate, annealed, best_of
from tfplace.choosing.find_placement import Beside, Searched
from tfplace.choosing.scheduling.edges import NO_EDGES, EdgedProblem, with_order_edges
from tfplace.choosing.scheduling.list_schedules import by_longest_path
from tfplace.choosing.scheduling.model_order import ModelOrder
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.search.search import Limits
from tfplace.search.trial_log import SearchResult

ALGORITHM = "auto"
ROUNDS = (0.375, 0.625)
"""Shares of the time. The second anneals by rank only if the first, or the order found for what was
there before, has gained by it."""
NAME = "found in order"
MOST_NEAR = 4
"""So many of the best placements are tried as starts; other algorithms' are known by then."""


def budget_beside_order(prepared: PreparedModel, options: OptimizeOptions) -> OptimizeOptions:
    """The options of the search before, with what is left of its limits."""
    if not _is_searched(prepared, options):
        return options
    trials, share = options.max_trials, _share(prepared)
    return dataclasses.replace(
        options,
        budget_seconds=options.budget_seconds * (1.0 - share),
        max_trials=None if trials is None else max(round(trials * (1.0 - share)), 1),
    )


def search_in_order(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    progress: Progress,
    left_seconds: float = math.inf,
) -> Searched:
    """The same with what annealing by rank finds besides.

    Args:
      prepared: the problem, whose placements get an order.
      options: algorithm, limits and seed; only "auto" searches on.
      searched: what is known, each placement in its order.
      left_seconds: of the budget; `in_order_least` of it is taken even where less is left.
    """
    order = prepared.order
    best = searched.best
    if not _is_searched(prepared, options) or best is None or searched.result.interrupted:
        return searched
    assert isinstance(order, ModelOrder)
    is_large = prepared.problem.num_ops > LARGE_OPS and options.max_trials is None
    if is_large and left_seconds < PARTS["in_order"].of(options.budget_seconds) / 2.0:
        return searched  # making the levels would take longer than the least
    found, most = list(searched.candidates), options.max_trials
    longest = options.budget_seconds * _share(prepared)
    least = PARTS["in_order_least"].of(options.budget_seconds)
    # What each round finds gets an order, which takes as long as it took for others.
    seconds = min(max(left_seconds - len(ROUNDS) * order.seconds, least), longest)
    progress.say("searching on with what starts first as part of the plan")
    nearest = sorted(found, key=lambda each: each.step_seconds)[:MOST_NEAR]
    near = [each.device_of_op for each in nearest if math.isfinite(each.step_seconds)]
    interrupted, by_rank, num_trials, began = False, True, 0, time.monotonic()
    with progress.working(seconds):
        for number, share in enumerate(ROUNDS):
            trials = None if most is None else max(round(most * _share(prepared) * share), 1)
            limits, seed = Limits(seconds * share, trials), options.seed + number
            starts = [best.device_of_op, *near]
            new, result = _annealed(prepared, order, starts, limits, seed, by_rank)
            interrupted, num_trials = result.interrupted, num_trials + result.num_trials
            has_gained = new is not None and new.step_seconds < best.step_seconds
            found += [] if new is None else [new]
            best = best_of([best, *found[-1:]]) or best
            by_rank = has_gained or order.ordered(prepared, best.device_of_op).rank is not None
            if interrupted:
                break
    result = dataclasses.replace(searched.result, interrupted=interrupted)
    beside = [*searched.beside, Beside("in order", num_trials, time.monotonic() - began)]
    return dataclasses.replace(searched, candidates=found, result=result, beside=beside)


def _annealed(
    prepared: PreparedModel,
    order: ModelOrder,
    placements: Sequence[IntArray],
    limits: Limits,
    seed: int,
    by_rank: bool,
) -> tuple[Candidate | None, SearchResult]:
    """What annealing finds, by rank with the first placement's order, and its search."""
    rank, held = rank_and_reads(prepared, order, placements[0])
    if by_rank:
        ranked = dataclasses.replace(held.problem, start_rank=held.renumbered(rank))
    else:
        held = with_order_edges(prepared.problem, NO_EDGES)
        ranked = held.problem
    starts = np.array([held.renumbered(each) for each in placements], dtype=np.int32)
    result = annealed(ranked, starts, limits, seed)
    if result.best is None:
        return None, result
    placement = np.empty_like(placements[0])
    placement[held.op_at] = result.best.placement.device_of_op
    order.searched_with(placement, rank)
    return Candidate(NAME, placement, order.ordered(prepared, placement).outcome), result


def rank_and_reads(
    prepared: PreparedModel, order: ModelOrder, placement: IntArray
) -> tuple[IntArray, EdgedProblem]:
    """The ranks i4[N] of the best order of a placement, and the problem with its reads held back.

    Both belong to what a placement takes in order: with reads that all begin at 0, a data parallel
    step looked a fifth slower than it was, and what the search then gained there was none.
    """
    best = order.ordered(prepared, placement)
    rank = by_longest_path(prepared.problem, placement) if best.rank is None else best.rank
    return rank, with_order_edges(prepared.problem, best.reads)


def _share(prepared: PreparedModel) -> float:
    if prepared.split is None:
        return PARTS["in_order_unsplit"].share
    return PARTS["in_order_large" if prepared.problem.num_ops > LARGE_OPS else "in_order"].share


def _is_searched(prepared: PreparedModel, options: OptimizeOptions) -> bool:
    """Whether there is something to search on for; with an executor ranks are not simulated."""
    return (
        type(prepared.order) is ModelOrder
        and options.algorithm == ALGORITHM
        and options.evaluator != "measure"
        and prepared.problem.executor is None
        and prepared.problem.num_devices > 1
    )

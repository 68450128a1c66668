"""Real runs of what the search chose, where the devices are present: they have the last word."""

from __future__ import annotations

import dataclasses
import math
import time

from tfplace.choosing.choose import Choice, confirmed
from tfplace.choosing.compare import Comparison, Tried, compare, placements_to_compare
from tfplace.choosing.finalists import (
    SEARCH_SHARE,
    SLOWER_LINKS,
    finalists,
    has_finalists,
    of_measured_search,
    quickest,
)
from tfplace.choosing.find_placement import Searched
from tfplace.interruption import interruptible
from tfplace.measurement.step_limits import StepLimits
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress

FINALISTS_SHARE = 0.4
"""Of the time for real runs; the comparison with given and single has the rest."""
BEGIN_SECONDS, SLOWER = 10.0, 1.5
"""What real runs take before the first step (processes, import, values of variables), and how much
longer than predicted a step may take."""
COMPARED_STEPS, FINALISTS_STEPS = 14, 7
"""Steps of each placement: the first, those that warm up, those that count."""


def time_choice(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    choice: Choice,
    progress: Progress,
    seconds: float = math.inf,
) -> tuple[Choice, Comparison | None]:
    """What is written after real runs, and these; None where there were none.

    After Ctrl-C the choice is the prediction's.

    Args:
      prepared: the problem.
      options: evaluator, budget and seed.
      searched: what given, single and the other candidates are.
      choice: by prediction.
      progress: is told what goes on.
      seconds: the longest that all real runs may take.
    """
    if not prepared.is_present or prepared.problem.num_devices == 1:
        return choice, None
    if options.evaluator == "simulate":
        return choice, None
    untimed: tuple[Choice, Comparison | None] = choice, None
    with interruptible() as interruption:
        return interruption.unless_seen(
            lambda: _timed(prepared, options, searched, choice, progress, seconds), untimed
        )


def _timed(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    choice: Choice,
    progress: Progress,
    seconds: float,
) -> tuple[Choice, Comparison | None]:
    end = time.monotonic() + max(seconds, 0.0)
    name, seed, tried = prepared.cluster.name, options.seed, list[Tried]()
    is_contest = choice.verdict == "placed" and has_finalists(prepared, options)
    if is_contest and seconds < _contest_seconds(searched, choice):
        progress.say("there is no time to time rivals, too: the best prediction is compared")
        is_contest = False
    if is_contest:
        progress.say("searching for rivals where links are slower")
        with progress.working(len(SLOWER_LINKS) * SEARCH_SHARE * options.budget_seconds):
            rivals = finalists(prepared, choice.candidate, options.budget_seconds, seed)
        progress.say(f"timing the best few placements on {name}")
        left = FINALISTS_SHARE * max(end - time.monotonic(), 0.0)
        with progress.working(left if math.isfinite(left) else None):
            winner, tried = quickest(prepared, rivals, seed, left)
        choice = dataclasses.replace(choice, candidate=winner)
    if options.evaluator == "measure":
        left = FINALISTS_SHARE * max(end - time.monotonic(), 0.0)
        choice, tried = of_measured_search(prepared, searched.candidates, choice, seed, left)
    progress.say(f"timing given, single and placed on {name}")
    placements = placements_to_compare(searched.candidates, choice.candidate)
    left = max(end - time.monotonic(), 0.0)
    with progress.working(left if math.isfinite(left) else None):
        timings = compare(prepared, placements, StepLimits(seed=seed, all_seconds=left), seed)
    timings = dataclasses.replace(timings, tried=tried)
    return confirmed(choice, searched.candidates, timings), timings


def _contest_seconds(searched: Searched, choice: Choice) -> float:
    """What timing rivals takes, and the comparison afterwards, which matters more."""
    own = choice.candidate.step_seconds
    single = min((c.step_seconds for c in searched.baselines if c.name == "single"), default=own)
    compared = (own + (single if math.isfinite(single) else own)) * COMPARED_STEPS
    rivals = (1 + len(SLOWER_LINKS)) * own * FINALISTS_STEPS
    return 2 * BEGIN_SECONDS + SLOWER * (compared + rivals)

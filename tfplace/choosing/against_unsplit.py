"""Real runs of a split step beside the step as it came: `--shards=auto` never makes one slower.

Small shards read all weights again, so that a step of M shards on one device may take longer than
the unsplit one there: being faster than its own single device says little of a split step.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Sequence

import numpy as np

from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice, choose
from tfplace.choosing.finalists import FIRST_ROUND, has_finalists
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.ties import TIE
from tfplace.choosing.time_choice import Decided, time_choice
from tfplace.interruption import interruptible
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.timing import summarize
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress

CONTEST_SHARE = 0.45
"""Of the time for real runs, at most; the comparison with given and single has the rest."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A problem, and what was found for it.

    Attributes:
      prepared: the step, split or not.
      searched: its placements.
    """

    prepared: PreparedModel
    searched: Searched

    def choice(self) -> Choice:
        """By prediction."""
        return choice_of(self.prepared.problem, self.searched)


def choice_of(problem: Problem, searched: Searched) -> Choice:
    """By prediction, of everything that was found; compared with the unsplit step if known."""
    unsplit = () if searched.unsplit is None else searched.unsplit.baselines
    return choose([*searched.candidates, *searched.fewer], problem, unsplit)


def time_beside_unsplit(
    found: Found,
    choice: Choice,
    unsplit: Found | None,
    options: OptimizeOptions,
    progress: Progress,
    seconds: float = math.inf,
) -> Decided:
    """What is written after real runs: the split step only where it beats the unsplit one.

    Args:
      found: what the search found best.
      choice: of its placements, by prediction.
      unsplit: the step as it came, where that was searched, too, and another was found better.
      options: evaluator, budget and seed.
      progress: is told what goes on.
      seconds: the longest that all real runs may take.
    """
    end = time.monotonic() + max(seconds, 0.0)
    rival = unsplit if has_finalists(found.prepared, options) else None
    if rival is not None and not _wins(found, choice, rival, options, progress, seconds):
        found, choice = rival, rival.choice()
    left = end - time.monotonic()
    decided = time_choice(found.prepared, options, found.searched, choice, progress, left)
    if rival is None or rival is found or decided.choice.verdict == "placed":
        return decided
    why = "in real runs no split step beat one device"
    return Decided(rival.prepared, rival.searched, Choice(_single(rival), "kept_single", why))


def _single(found: Found) -> Candidate:
    return next(each for each in found.searched.baselines if each.name == "single")


def _wins(
    found: Found,
    choice: Choice,
    unsplit: Found,
    options: OptimizeOptions,
    progress: Progress,
    seconds: float,
) -> bool:
    """Whether the split step runs faster than the unsplit one, on one device and at its best.

    After Ctrl-C the prediction stands, which says so.
    """
    if choice.verdict != "placed":
        return False
    split, limit = found.prepared, CONTEST_SHARE * max(seconds, 0.0)
    progress.say(f"timing the split step beside the unsplit one on {split.cluster.name}")
    rivals = {"split": (split, choice.candidate.device_of_op)}
    for candidate in (_single(unsplit), unsplit.choice().candidate):
        placement = candidate.device_of_op
        rivals[f"unsplit {placement.tobytes()!r}"] = (unsplit.prepared, placement)
    graphs = {name: each.placed_run_graph(placement) for name, (each, placement) in rivals.items()}
    runs = {name: each.training_run() for name, (each, _) in rivals.items()}
    limits = dataclasses.replace(FIRST_ROUND, seed=options.seed, all_seconds=limit)
    work = functools.partial(measure_variants, graphs, runs, split.cluster, limits)
    with (
        progress.working(limit if math.isfinite(limit) else None),
        interruptible() as interruption,
    ):
        results = interruption.unless_seen(work, None)
    if results is None:
        return True
    return is_faster(results.pop("split"), list(results.values()))


def is_faster(split: Timings | Infeasible, unsplit: Sequence[Timings | Infeasible]) -> bool:
    """By medians, and by more than a tie; also where no unsplit step could be timed."""
    medians = [_median(each) for each in unsplit]
    if not np.isfinite([_median(split), *medians]).any():
        return True  # nothing could be timed: the prediction stands
    return _median(split) < min(medians) * (1.0 - TIE)


def _median(result: Timings | Infeasible) -> float:
    if isinstance(result, Infeasible):
        return math.inf
    return summarize(result.step_seconds).median_seconds

"""Real runs of what the search chose, where the devices are present: they have the last word."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from graphs.problem import Problem
from tfplace.choosing.choose import Choice, confirmed
from tfplace.choosing.compare import Comparison, Tried, compare, placements_to_compare
from tfplace.choosing.finalists import has_finalists, of_measured_search
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.rounds.contest import ROUNDS_SHARE, Contest, contest
from tfplace.choosing.rounds.estimate import Corrections
from tfplace.choosing.rounds.first_plans import is_open
from tfplace.choosing.rounds.of_comparison import taught_by
from tfplace.choosing.rounds.plan import Round
from tfplace.choosing.rounds.real_runs import child_for
from tfplace.choosing.unsplit_baselines import predicted
from tfplace.interruption import interruptible
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.step_limits import StepLimits
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress

BEGIN_SECONDS = 10.0
"""What real runs take before the first step: processes, import, values of variables."""
COMPARED_STEPS = 14
"""Steps of each placement: the first, those that warm up, those that count."""
STEPS_ALONE = 20
"""Where all of them are one placement, there is nothing to decide."""
MOST_TRIED = 5
"""Placements of the rounds that a report lists by name."""


@dataclasses.dataclass(frozen=True)
class Decided:
    """What is written after real runs.

    Attributes:
      prepared: with the simulator as real runs have corrected it.
      searched: its candidates, predicted by that simulator.
      choice: what is written.
      timings: of given, single and placed; None where there were no real runs.
      rounds: what was measured to choose, and learned from it.
      corrections: of the machine; None where nothing was learned.
    """

    prepared: PreparedModel
    searched: Searched
    choice: Choice
    timings: Comparison | None = None
    rounds: Sequence[Round] = ()
    corrections: Corrections | None = None

    @property
    def has_forgotten(self) -> bool:
        """Whether the rounds contradict what earlier runs have taught of the machine."""
        if self.corrections is None or not self.prepared.cluster.taught:
            return False
        return not self.corrections.model.has_been_taught

    def corrected(self, problem: Problem) -> Problem:
        """Another problem of the same machine, as real runs have shown it."""
        if self.corrections is None:
            return problem
        return self.corrections.model.corrected(problem, self.corrections.theta)


def time_choice(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    choice: Choice,
    progress: Progress,
    seconds: float = math.inf,
    held: HeldRuns | None = None,
) -> Decided:
    """What is written after real runs.

    After Ctrl-C the choice is the prediction's.

    Args:
      prepared: the problem.
      options: evaluator, budget and seed.
      searched: what given, single and the other candidates are.
      choice: by prediction.
      progress: is told what goes on.
      seconds: the longest that all real runs may take.
      held: where they are made, if there is a child already.
    """
    untimed = Decided(prepared, searched, choice)
    if not prepared.is_present or prepared.problem.num_devices == 1:
        return untimed
    if options.evaluator == "simulate":
        return untimed
    with (
        interruptible() as interruption,
        child_for(prepared, max(seconds, 0.0)) if held is None else nullcontext(held) as child,
    ):
        return interruption.unless_seen(
            lambda: _timed(untimed, options, child, progress, max(seconds, 0.0)), untimed
        )


def _timed(
    decided: Decided, options: OptimizeOptions, held: HeldRuns, progress: Progress, seconds: float
) -> Decided:
    end = time.monotonic() + seconds
    tried: Sequence[Tried] = ()
    is_contest = is_open(decided.searched, decided.choice)
    if is_contest and has_finalists(decided.prepared, options):
        reserved = _comparison_seconds(decided)
        arguments = decided.prepared, options, decided.searched, decided.choice, held
        won = contest(*arguments, seconds, reserved, progress)
        if won is None:
            progress.say("there is no time to time rivals, too: the best prediction is compared")
        else:
            decided, tried = _after(decided, won), won.tried[:MOST_TRIED]
    prepared, searched, choice = decided.prepared, decided.searched, decided.choice
    if options.evaluator == "measure":
        left = (1.0 - ROUNDS_SHARE) * max(end - time.monotonic(), 0.0)
        choice, tried = of_measured_search(
            prepared, searched.candidates, choice, options.seed, left
        )
    progress.say(f"timing given, single and placed on {prepared.cluster.name}")
    placements = placements_to_compare(searched.candidates, choice.candidate)
    left = max(end - time.monotonic(), 0.0)
    limits = StepLimits(seed=options.seed, all_seconds=left)
    if len({placement.tobytes() for placement in placements.values()}) == 1:
        limits = dataclasses.replace(limits, max_steps=STEPS_ALONE)
    with progress.working(left if math.isfinite(left) else None):
        timings = compare(prepared, placements, limits, options.seed, held)
    timings = dataclasses.replace(timings, tried=tried)
    decided = dataclasses.replace(decided, choice=choice)
    taught = None if decided.rounds else taught_by(prepared, choice.candidate, placements, timings)
    if taught is not None:
        decided = _after(decided, taught)
    choice = confirmed(decided.choice, decided.searched.candidates, timings)
    return dataclasses.replace(decided, choice=choice, timings=timings)


def _after(decided: Decided, won: Contest) -> Decided:
    """Everything predicted anew by the simulator that the rounds have corrected."""
    model, theta = won.corrections.model, won.corrections.theta
    prepared, searched = decided.prepared, decided.searched
    unlimited = prepared.unlimited
    prepared = dataclasses.replace(
        prepared,
        problem=won.corrections.problem,
        unlimited=None if unlimited is None else model.corrected(unlimited, theta),
    )
    searched = dataclasses.replace(
        searched,
        baselines=predicted(prepared.problem, searched.baselines),
        candidates=predicted(prepared.problem, searched.candidates),
        fewer=predicted(prepared.problem, searched.fewer),
        unsplit=None
        if searched.unsplit is None
        else searched.unsplit.on(lambda problem: model.corrected(problem, theta)),
    )
    choice = decided.choice
    if not np.array_equal(choice.candidate.device_of_op, won.winner.device_of_op):
        choice = dataclasses.replace(choice, verdict="placed")
    choice = dataclasses.replace(choice, candidate=won.winner)
    return Decided(prepared, searched, choice, None, won.rounds, won.corrections)


def _comparison_seconds(decided: Decided) -> float:
    """What steps of the comparison with given and single take, which matters more than rivals."""
    own = decided.choice.candidate.step_seconds
    singles = [c.step_seconds for c in decided.searched.baselines if c.name == "single"]
    single = min(filter(math.isfinite, singles), default=own)
    return (own + single) * COMPARED_STEPS

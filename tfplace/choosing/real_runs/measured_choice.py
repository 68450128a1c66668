"""Real runs of what the search chose, where the devices are present: they have the last word."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np

from graphs.op_graph import IntArray
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate, predicted
from tfplace.choosing.budget import has_finalists
from tfplace.choosing.choose import Choice, confirmed
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.outcomes import Decided, Found
from tfplace.choosing.real_runs.compare import BASELINES, compare, placements_to_compare
from tfplace.choosing.real_runs.contest import Contest, contest, forward_model, is_open
from tfplace.choosing.real_runs.estimate import estimate
from tfplace.choosing.real_runs.finalists import of_measured_search
from tfplace.choosing.real_runs.held_runs import BEGIN_SECONDS, SECONDS_PER_OP, child_for
from tfplace.choosing.real_runs.knowledge import noise_of_median
from tfplace.choosing.run_results import PLACED, Comparison, Corrections, MeasuredStep, Round, Tried
from tfplace.interruption import interruptible
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.timing import Timing
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress

COMPARED_STEPS = 12
"""Steps of each placement: the first, one or more that warm up, those that count."""
LEAST_COMPARED = 7
"""The same where there is no time for more."""
STEPS_ALONE = 20
"""Steps where given, single and placed are one placement, so that there is nothing to decide."""
MOST_TRIED = 5
"""Placements of the rounds that a report lists by name."""


def time_choice(
    found: Found,
    options: OptimizeOptions,
    progress: Progress,
    seconds: float,
    held: HeldRuns | None,
    choice: Choice,
    unsplit: Found | None = None,
) -> Decided:
    """What is written after real runs.

    After Ctrl-C the choice is the prediction's.

    Args:
      found: the problem, and what given, single and the other candidates are.
      seconds: the longest that all real runs may take.
      held: where they are made, if there is a child already.
      choice: by prediction.
      unsplit: the step as it came, where `found` is a split one: it is what given and single are
        of, and what is written where the comparison keeps one of them.
    """
    prepared = found.prepared
    untimed = Decided(prepared, found.searched, choice)
    if not prepared.is_present or prepared.problem.num_devices == 1:
        return untimed
    if options.evaluator == "simulate":
        return untimed
    with (
        interruptible() as interruption,
        child_for(prepared, max(seconds, 0.0)) if held is None else nullcontext(held) as child,
    ):
        return interruption.unless_seen(
            lambda: _timed(untimed, options, child, progress, max(seconds, 0.0), unsplit), untimed
        )


def _timed(
    decided: Decided,
    options: OptimizeOptions,
    held: HeldRuns,
    progress: Progress,
    seconds: float,
    unsplit: Found | None,
) -> Decided:
    end = time.monotonic() + seconds
    tried: Sequence[Tried] = ()
    if is_open(decided.searched, decided.choice) and has_finalists(decided.prepared, options):
        reserved = _comparison_seconds(decided, unsplit)
        arguments = decided.prepared, options, decided.searched, decided.choice, held
        won = contest(*arguments, seconds, reserved, progress)
        if won is None:
            progress.say("there is no time to time rivals, too: one placement is compared")
        else:
            decided, tried = _after(decided, won), won.tried[:MOST_TRIED]
    prepared, searched, choice = decided.prepared, decided.searched, decided.choice
    if options.evaluator == "measure":
        left = (1.0 - PARTS["rounds"].share) * max(end - time.monotonic(), 0.0)
        choice, tried = of_measured_search(
            prepared, searched.candidates, choice, options.seed, left
        )
    progress.say(f"timing given, single and placed on {prepared.cluster.name}")
    known = searched if unsplit is None else unsplit.searched
    placements = placements_to_compare(known.candidates, choice.candidate)
    left = max(end - time.monotonic(), 0.0)
    limits = StepLimits(seed=options.seed, all_seconds=left)
    if len({placement.tobytes() for placement in placements.values()}) == 1:
        limits = dataclasses.replace(limits, max_steps=STEPS_ALONE)
    whole = None if unsplit is None else unsplit.prepared
    with progress.working(left if math.isfinite(left) else None):
        timings = compare(prepared, placements, limits, options.seed, held, whole)
    timings = dataclasses.replace(timings, tried=tried)
    decided = dataclasses.replace(decided, choice=choice, timings=timings)
    if not decided.rounds:
        own = placements if unsplit is None else {PLACED: placements[PLACED]}
        taught = taught_by(prepared, choice.candidate, own, timings)
        decided = decided if taught is None else _after(decided, taught)
    step = decided.prepared if unsplit is None else unsplit.prepared
    is_timed = bool(decided.rounds) or options.evaluator == "measure"
    choice = confirmed(decided.choice, known.candidates, timings, step.problem, is_timed)
    decided = dataclasses.replace(decided, choice=choice)
    if unsplit is None or choice.verdict == "placed":
        return decided
    return _with_unsplit(decided, unsplit)


def _with_unsplit(decided: Decided, unsplit: Found) -> Decided:
    """The same where the unsplit step is kept, predicted by what real runs have taught."""
    prepared, searched = unsplit.prepared, unsplit.searched
    if decided.corrections is not None:
        prepared, searched = _on_corrected_machine(prepared, searched, decided.corrections)
    kept = decided.choice.candidate.name
    candidate = next(each for each in searched.candidates if each.name == kept)
    choice = dataclasses.replace(decided.choice, candidate=candidate)
    return dataclasses.replace(decided, prepared=prepared, searched=searched, choice=choice)


def _after(decided: Decided, won: Contest) -> Decided:
    """Everything predicted anew by the simulator that the rounds have corrected."""
    prepared, searched = _on_corrected_machine(decided.prepared, decided.searched, won.corrections)
    choice = decided.choice
    if not np.array_equal(choice.candidate.device_of_op, won.winner.device_of_op):
        choice = dataclasses.replace(choice, verdict="placed")
    choice = dataclasses.replace(choice, candidate=won.winner)
    return dataclasses.replace(
        decided,
        prepared=prepared,
        searched=searched,
        choice=choice,
        rounds=won.rounds,
        corrections=won.corrections,
    )


def _on_corrected_machine(
    prepared: PreparedModel, searched: Searched, corrections: Corrections
) -> tuple[PreparedModel, Searched]:
    """A step and what was found for it, predicted anew."""
    corrected = corrections.corrected
    problem, unlimited = corrected(prepared.problem), prepared.unlimited
    prepared = dataclasses.replace(
        prepared, problem=problem, unlimited=None if unlimited is None else corrected(unlimited)
    )
    searched = dataclasses.replace(
        searched,
        baselines=predicted(problem, searched.baselines),
        candidates=predicted(problem, searched.candidates),
        fewer=predicted(problem, searched.fewer),
        unsplit=searched.unsplit and searched.unsplit.on(corrected),
        data_parallel=searched.data_parallel and searched.data_parallel.on(corrected),
    )
    return prepared, searched


def _comparison_seconds(decided: Decided, unsplit: Found | None) -> float:
    """What the comparison with given and single takes, which matters more than rivals.

    Given, where it is not single, is in no round before; nor is the unsplit step.
    """
    own = decided.choice.candidate
    whole = Found(decided.prepared, decided.searched) if unsplit is None else unsplit
    compared = {
        each.device_of_op.tobytes(): each.step_seconds
        for each in whole.searched.baselines
        if each.name in BASELINES and math.isfinite(each.step_seconds)
    }
    num_new = len(compared) if unsplit is not None else max(len(compared) - 1, 0)
    num_ops = whole.prepared.problem.num_ops
    return comparison_seconds(num_ops, [*compared.values(), own.step_seconds], num_new)


def comparison_seconds(
    num_ops: int, step_seconds: Sequence[float], num_new: int | None = None, is_short: bool = False
) -> float:
    """What a comparison of placements takes, roughly.

    Args:
      step_seconds: of each, as predicted.
      num_new: how many of them are still to be prepared, in a child that runs; None: all, in one
        that has yet to be started.
      is_short: whether as few steps as tell anything have to do.
    """
    begin, new = (BEGIN_SECONDS, len(step_seconds)) if num_new is None else (0.0, num_new)
    num_steps = LEAST_COMPARED if is_short else COMPARED_STEPS
    return begin + sum(step_seconds) * num_steps + new * SECONDS_PER_OP * num_ops


_P10_TO_P90 = 2.5631
"""Standard deviations between a normal variable's 10th and 90th percentile."""


def taught_by(
    prepared: PreparedModel,
    winner: Candidate,
    placements: Mapping[str, IntArray],
    timings: Comparison,
) -> Contest | None:
    """The comparison as a round; None where nothing ran.

    Args:
      prepared: the problem; its devices are present.
      placements: {name: i4[N]} what was timed.
    """
    ran = {
        name: each
        for name, each in timings.timings.items()
        if isinstance(each, Timing) and name in placements and name not in timings.same_as
    }
    if not ran:
        return None
    model = forward_model(prepared)
    steps = np.array([placements[name] for name in ran], dtype=np.int32)
    seconds = np.array([each.median_seconds for each in ran.values()])
    before = Corrections.unknown(model).seconds(steps)
    corrections = estimate(model, steps, seconds, np.array([_noise(each) for each in ran.values()]))
    measured = [
        MeasuredStep(name, float(b), float(s))
        for name, b, s in zip(ran, before, seconds, strict=True)
    ]
    found = predicted(corrections.problem, [winner])[0]
    return Contest(found, (), [Round(measured, corrections.values())], corrections)


def _noise(timing: Timing) -> float:
    """The standard deviation of the log of a median."""
    return noise_of_median(math.log(timing.p90 / timing.p10) / _P10_TO_P90, timing.runs)

"""Real runs of steps split into different numbers of shards: `--shards=auto` writes the fastest.

What shards gain is what a prediction misses most: small shards read all weights again, and how
transfers and ops share a core differs from machine to machine. So numbers whose best predictions
are close are timed side by side, data parallelism among them, and the unsplit step always.
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Hashable, Sequence

import numpy as np

from graphs.problem import Infeasible
from graphs.source_model import SourceModel
from tfplace.budget import PARTS
from tfplace.choosing.baselines import SINGLE, Candidate
from tfplace.choosing.budget import FIRST_ROUND, has_finalists
from tfplace.choosing.choose import Choice
from tfplace.choosing.data_parallel import NAME as DATA_PARALLEL
from tfplace.choosing.outcomes import Decided, Found
from tfplace.choosing.real_runs.held_runs import (
    BEGIN_SECONDS,
    FIRST_STEPS,
    SECONDS_PER_OP,
    SLOWER,
    STEP_TIMEOUT_SECONDS,
    child_for,
)
from tfplace.choosing.real_runs.measured_choice import time_choice
from tfplace.choosing.ties import TIE
from tfplace.interruption import interruptible
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.run_measurement import measure_variants
from tfplace.preparing.options import AUTO, OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress

CONTEST_ROUND = dataclasses.replace(FIRST_ROUND, min_steps=3)
"""What is much slower is seen by few steps; what is near is compared afterwards."""
CLOSE = 1.3
"""Another number of shards is timed if its predicted step is at most so many times the best one."""

PLAIN = 1.15
"""Where rivals can't be timed, data parallelism is compared if it is predicted to take at most so
many times as long as the best."""


@dataclasses.dataclass(frozen=True)
class _Rival:
    """A placement of one of the problems. Attributes: found: the problem's; candidate: of them."""

    found: Found
    candidate: Candidate

    @property
    def tried(self) -> tuple[int, str]:
        """How many shards or pieces, and what is cut."""
        split = self.found.prepared.split
        if split is None:
            return 1, "batch"
        return split.num_shards, "weights" if split.step.pieces else "batch"

    def choice(self) -> Choice:
        """This placement as what is written; but the prediction where that or one device won."""
        predicted = self.found.choice()
        is_same = np.array_equal(self.candidate.device_of_op, predicted.candidate.device_of_op)
        if is_same or self.candidate.name == SINGLE:
            return predicted
        return dataclasses.replace(predicted, verdict="placed", candidate=self.candidate)


def runs_ahead(
    prepared: PreparedModel, options: OptimizeOptions, seconds: float
) -> contextlib.AbstractContextManager[HeldRuns | None]:
    """A child that prepares what real runs will compare while the search goes on beside.

    Preparing a large step takes as long as its runs, and a search needs but one core.

    Args:
      prepared: the unsplit step.
      seconds: until the real runs have to end.
    """
    if options.problem.num_shards != AUTO or not has_finalists(prepared, options):
        return contextlib.nullcontext()
    return child_for(prepared, max(seconds, 0.0))


def time_beside_others(
    found: Found,
    others: Sequence[Found],
    options: OptimizeOptions,
    progress: Progress,
    seconds: float = math.inf,
    split_seconds: float = 0.0,
    held: HeldRuns | None = None,
) -> Decided:
    """What is written after real runs: a split step only where it beats the unsplit one.

    Args:
      found: what the search found best.
      others: for other numbers of shards, the unsplit step among them unless that is `found`.
      seconds: the longest that all real runs may take.
      split_seconds: what of it a split step leaves to its proof.
      held: where some of the runs are prepared already, if there is a child.
    """
    choice = found.choice()

    def left(chosen: Found) -> float:
        proving = split_seconds if chosen.prepared.split is not None else 0.0
        return max(end - proving - time.monotonic(), 0.0)

    end = time.monotonic() + seconds
    if not others or not has_finalists(found.prepared, options):
        return time_choice(found, options, progress, left(found), held, choice)
    if held is not None:
        held.process.end_after(seconds)
    with held or child_for(found.prepared, max(seconds, 0.0)) as held:
        limit = PARTS["contest"].share * max(seconds - split_seconds, 0.0)
        close = _rivals(found, others)
        rivals = _that_can_be_timed(close, limit, held)
        best = _plainest(close)
        seconds_of: dict[tuple[int, str], float] = {}
        if len(rivals) > 2:  # between one device and another the comparison afterwards decides
            best, seconds_of = _fastest(rivals, options, progress, limit, held)
        if best is not None:
            found, others, choice = best.found, [found, *others], best.choice()
        held.process.end_after(left(found))
        unsplit = [each for each in others if each.prepared.split is None and each is not found]
        whole = next(iter(unsplit), None)
        shards = [
            dataclasses.replace(each, measured_seconds=seconds_of.get((each.shards, each.cut)))
            for each in found.searched.shards
        ]
        searched = dataclasses.replace(found.searched, shards=shards)
        found = dataclasses.replace(found, searched=searched)
        return time_choice(found, options, progress, left(found), held, choice, whole)


def run_tag(source: SourceModel, candidate: Candidate) -> Hashable:
    """Tells the run of a placement apart from those of others, and of other steps."""
    return id(source), candidate.device_of_op.tobytes()


def _that_can_be_timed(rivals: Sequence[_Rival], seconds: float, held: HeldRuns) -> list[_Rival]:
    """Those for which there is time: first one device and the best prediction, then by prediction.

    Their order stays. Preparing a placement of a large graph takes longer than its steps.
    """
    left, chosen = seconds - BEGIN_SECONDS * (not held.begun), set()
    first = [rival for rival in rivals if rival.candidate.name == SINGLE] + [rivals[0]]
    for rival in [*first, *sorted(rivals, key=lambda rival: rival.candidate.step_seconds)]:
        if id(rival) in chosen:
            continue
        # What preparing it, if it was not begun before, and its steps take, roughly.
        prepared, preparing = rival.found.prepared, 0.0
        num_steps = CONTEST_ROUND.warmup_steps + CONTEST_ROUND.min_steps
        if run_tag(prepared.source, rival.candidate) not in held.begun:
            num_steps += FIRST_STEPS
            preparing = SECONDS_PER_OP * prepared.problem.num_ops
        left -= preparing + num_steps * SLOWER * rival.candidate.step_seconds
        if left < 0.0:
            break
        chosen.add(id(rival))
    return [rival for rival in rivals if id(rival) in chosen]


def _plainest(rivals: Sequence[_Rival]) -> _Rival | None:
    """Where rivals can't be timed: data parallelism in the fewest shards, if it is close.

    It loses least by what a prediction misses. None: as predicted.
    """
    limit = PLAIN * rivals[0].candidate.step_seconds
    plain = [each for each in rivals if each.candidate.name == DATA_PARALLEL]
    close = [each for each in plain if each.candidate.step_seconds <= limit]
    if rivals[0].found.prepared.split is None:
        return None
    return min(close, key=lambda each: each.found.prepared.problem.num_ops, default=None)


def _single(found: Found) -> Candidate:
    return next(each for each in found.searched.baselines if each.name == SINGLE)


def _rivals(found: Found, others: Sequence[Found]) -> list[_Rival]:
    """Of each number the best prediction, and data parallelism, where they are close.

    Of the unsplit step one device is always among them, and its best whatever it promises.
    """
    limit = CLOSE * found.choice().candidate.step_seconds
    rivals: dict[tuple[int, bytes], _Rival] = {}
    for each in (found, *others):
        best = each.choice().candidate
        evenly = [c for c in each.searched.candidates if c.name == DATA_PARALLEL]
        near = [c for c in (best, *evenly) if c.step_seconds <= limit]
        always = [_single(each), best] if each.prepared.split is None else []
        for candidate in (*always, *near):
            rivals.setdefault((id(each), candidate.device_of_op.tobytes()), _Rival(each, candidate))
    return list(rivals.values())


def _fastest(
    rivals: Sequence[_Rival],
    options: OptimizeOptions,
    progress: Progress,
    seconds: float,
    held: HeldRuns,
) -> tuple[_Rival | None, dict[tuple[int, str], float]]:
    """What ran fastest, of equals the unsplit step; and {(shards, what is cut): seconds}.

    None: Ctrl-C, or nothing could be timed and the unsplit step is not here.
    """
    first = rivals[0].found.prepared
    progress.say(f"timing {len(rivals)} placements of split and unsplit steps")
    graphs, runs = {}, {}
    for number, rival in enumerate(rivals):
        prepared = rival.found.prepared
        graphs[str(number)] = prepared.placed_run_graph(rival.candidate.device_of_op)
        runs[str(number)] = prepared.training_run()
    limits = dataclasses.replace(
        CONTEST_ROUND,
        seed=options.seed,
        budget_seconds=min(max(seconds - BEGIN_SECONDS, 1.0), PARTS["contest"].most),
        prepare_timeout_seconds=min(
            max(seconds, STEP_TIMEOUT_SECONDS), CONTEST_ROUND.prepare_timeout_seconds
        ),
    )
    work = functools.partial(measure_variants, graphs, runs, first.cluster, limits, "", held)
    with (
        progress.working(seconds if math.isfinite(seconds) else None),
        interruptible() as interruption,
    ):
        results = interruption.unless_seen(work, None)
    if results is None:
        return None, {}
    ran = [results[name] for name in graphs]
    medians = [math.inf if isinstance(each, Infeasible) else each.median_seconds for each in ran]
    slowest_first = sorted(zip(medians, (rival.tried for rival in rivals), strict=True))[::-1]
    seconds_of = {tried: median for median, tried in slowest_first if math.isfinite(median)}
    return _least(rivals, medians), seconds_of


def _least(rivals: Sequence[_Rival], medians: Sequence[float]) -> _Rival | None:
    """The fastest rival if it wins by more than a tie; otherwise, the unsplit step.

    Where none could be timed, the unsplit step's best: its graph is the smallest, so that it may
    still be compared with one device. None where there is no unsplit step.
    """
    least = min(medians)
    if not math.isfinite(least):
        return next((each for each in reversed(rivals) if each.found.prepared.split is None), None)
    order = np.argsort(medians, kind="stable").tolist()
    tied = [rivals[number] for number in order if medians[number] <= least / (1.0 - TIE)]
    return next((each for each in tied if each.found.prepared.split is None), tied[0])

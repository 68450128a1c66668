"""The search loop: a policy proposes, an evaluator answers, the best feasible placement is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Measurement, Outcome, Placement
from tfplace.trial import Evaluator, Policy, Trial


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a search ends.

    Attributes:
      budget_seconds: wall time of all stages together.
      max_trials: evaluated placements; None for no limit.
    """

    budget_seconds: float
    max_trials: int | None = None


@dataclasses.dataclass(frozen=True)
class Stage:
    """A policy and the share of what is left of the budget that it may use.

    Attributes:
      name: the algorithm's, for progress and reports.
      start: makes the policy, given the best placement so far i4[N] or None.
      share: fraction (0, 1] of the remaining seconds and trials.
    """

    name: str
    start: Callable[[IntArray | None], Policy]
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class Progress:
    """A moment of a search.

    Attributes:
      stage: name of the running stage.
      num_trials, num_infeasible: so far.
      seconds: since the search began.
      best_step_seconds: of the best feasible placement, inf before there is one.
      scalars: what the policy reported of its last update.
    """

    stage: str
    num_trials: int
    num_infeasible: int
    seconds: float
    best_step_seconds: float
    scalars: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
      best: the best feasible trial, None where there was none.
      best_stage: the stage that found it.
      least_infeasible: an infeasible outcome to explain a failure with, or None.
      num_trials, num_infeasible, seconds: counts and wall time.
      history: [[trial, seconds, best_step_seconds]...], one row per improvement and the end.
      interrupted: whether Ctrl-C ended it.
    """

    best: Trial | None
    best_stage: str
    least_infeasible: Infeasible | None
    num_trials: int
    num_infeasible: int
    seconds: float
    history: Sequence[tuple[int, float, float]]
    interrupted: bool


class _Record:
    """Trials as they come."""

    def __init__(self, started: float, on_trial: Callable[[Trial], None] | None):
        self.started = started
        self.on_trial = on_trial
        self.best: Trial | None = None
        self.best_stage = ""
        self.least_infeasible: Infeasible | None = None
        self.num_trials = 0
        self.num_infeasible = 0
        self.history: list[tuple[int, float, float]] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def best_seconds(self) -> float:
        if self.best is None or not isinstance(self.best.outcome, Measurement):
            return math.inf
        return self.best.outcome.step_seconds

    def add(self, stage: str, device_of_op: IntArray, outcome: Outcome) -> None:
        index = self.num_trials
        self.num_trials += 1
        if isinstance(outcome, Infeasible) or not math.isfinite(outcome.step_seconds):
            self.num_infeasible += 1
            if isinstance(outcome, Infeasible) and _less_bad(outcome, self.least_infeasible):
                self.least_infeasible = outcome
        elif outcome.step_seconds < self.best_seconds:
            placement = Placement(np.array(device_of_op, dtype=np.int32))
            self.best = Trial(index, self.seconds, placement, outcome)
            self.best_stage = stage
            self.history.append((index, self.seconds, outcome.step_seconds))
        if self.on_trial is not None:
            self.on_trial(Trial(index, self.seconds, Placement(device_of_op), outcome))


def _less_bad(outcome: Infeasible, other: Infeasible | None) -> bool:
    """A placement that only lacks memory says more than one that breaks a constraint."""
    if other is None:
        return True
    if (outcome.reason == "memory") != (other.reason == "memory"):
        return outcome.reason == "memory"
    return sum(outcome.peak_bytes) < sum(other.peak_bytes)


def search(
    stages: Sequence[Stage],
    evaluator: Evaluator,
    limits: Limits,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_trial: Callable[[Trial], None] | None = None,
) -> SearchResult:
    """Runs the stages one after another, each from the best found so far.

    Ctrl-C ends the search after the running evaluation; what was found is returned.
    """
    record = _Record(time.monotonic(), on_trial)
    with _interrupts() as interrupted:
        for stage in stages:
            if interrupted() or _is_over(record, limits):
                break
            _run_stage(stage, evaluator, _stage_limits(stage, record, limits), record, on_progress,
                       interrupted)  # fmt: skip
        record.history.append((max(record.num_trials - 1, 0), record.seconds, record.best_seconds))
        return SearchResult(
            best=record.best,
            best_stage=record.best_stage,
            least_infeasible=record.least_infeasible,
            num_trials=record.num_trials,
            num_infeasible=record.num_infeasible,
            seconds=record.seconds,
            history=tuple(record.history),
            interrupted=interrupted(),
        )


def _stage_limits(stage: Stage, record: _Record, limits: Limits) -> Limits:
    seconds = record.seconds + (limits.budget_seconds - record.seconds) * stage.share
    if limits.max_trials is None:
        return Limits(seconds)
    trials = math.ceil((limits.max_trials - record.num_trials) * stage.share)
    return Limits(seconds, record.num_trials + trials)


def _is_over(record: _Record, limits: Limits) -> bool:
    out_of_trials = limits.max_trials is not None and record.num_trials >= limits.max_trials
    return out_of_trials or record.seconds >= limits.budget_seconds


def _run_stage(
    stage: Stage,
    evaluator: Evaluator,
    limits: Limits,
    record: _Record,
    on_progress: Callable[[Progress], None],
    interrupted: Callable[[], bool],
) -> None:
    best = record.best.placement.device_of_op if record.best else None
    policy = stage.start(best)
    while not (interrupted() or _is_over(record, limits)):
        proposal = policy.propose()
        if proposal is None:
            break
        placements = proposal.device_of_op
        if limits.max_trials is not None:
            placements = placements[: limits.max_trials - record.num_trials]
        outcomes = evaluator.evaluate(placements)
        for device_of_op, outcome in zip(placements, outcomes, strict=True):
            record.add(stage.name, device_of_op, outcome)
        scalars: Mapping[str, float] = {}
        if len(placements) == len(proposal.device_of_op):
            scalars = policy.learn(proposal, outcomes)
        on_progress(
            Progress(
                stage.name,
                record.num_trials,
                record.num_infeasible,
                record.seconds,
                record.best_seconds,
                scalars,
            )
        )


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C into a flag; the second one ends the process as usual."""
    seen: list[bool] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(True)

    try:
        previous = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread: nobody can press Ctrl-C at us
        yield lambda: bool(seen)
        return
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, previous)

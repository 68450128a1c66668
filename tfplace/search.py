"""The search loop: a policy proposes, an evaluator answers, the best feasible placement is kept."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Measurement, Outcome, Placement
from tfplace.interruption import Interrupted, Interruption, interruptible
from tfplace.trial import (
    Burst,
    DivergedError,
    Evaluator,
    PacedPolicy,
    Policy,
    Proposal,
    Trial,
)

_LOGGER = logging.getLogger(__name__)


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
      startup_seconds: what it takes before its first trial, compilation above all. Where less
        is left, and a placement is known already, the stage is left out.
    """

    name: str
    start: Callable[[IntArray | None], Policy]
    share: float = 1.0
    startup_seconds: float = 0.0


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
      interrupted: whether Ctrl-C or SIGTERM ended it.
      notes: why stages ended early, a sentence each.
      stages: [(name, trials of the search, its seconds)...] at the end of each stage that ran.
    """

    best: Trial | None
    best_stage: str
    least_infeasible: Infeasible | None
    num_trials: int
    num_infeasible: int
    seconds: float
    history: Sequence[tuple[int, float, float]]
    interrupted: bool
    notes: Sequence[str] = ()
    stages: Sequence[tuple[str, int, float]] = ()


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

    The first Ctrl-C or SIGTERM ends the search at once; what was found is returned. The budget is
    kept to one trial: a batch that is expected to take longer than what is left is evaluated in
    parts, and nothing is learned that no later proposal could use. A policy that diverges ends its
    stage, which is logged and noted.
    """
    notes, stages_run = [], []
    record = _Record(time.monotonic(), on_trial)
    with interruptible() as interruption, interruption.held():
        for stage in stages:
            if interruption.seen or _is_over(record, limits) or _is_too_late(stage, record, limits):
                continue
            run = _StageRun(stage, evaluator, _stage_limits(stage, record, limits), record)
            try:
                run.go(interruption, on_progress)
            except Interrupted:
                continue
            except DivergedError as error:
                notes.append(f"{stage.name} ended after {record.num_trials} trials: {error}")
                _LOGGER.warning("%s", notes[-1])
            finally:
                stages_run.append((stage.name, record.num_trials, record.seconds))
        record.history.append((max(record.num_trials - 1, 0), record.seconds, record.best_seconds))
        return SearchResult(
            best=record.best,
            best_stage=record.best_stage,
            least_infeasible=record.least_infeasible,
            num_trials=record.num_trials,
            num_infeasible=record.num_infeasible,
            seconds=record.seconds,
            history=tuple(record.history),
            interrupted=interruption.seen,
            notes=tuple(notes),
            stages=tuple(stages_run),
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


def _is_too_late(stage: Stage, record: _Record, limits: Limits) -> bool:
    """Whether a stage could not even begin in what is left; something else was found then."""
    left = limits.budget_seconds - record.seconds
    return record.best is not None and left < stage.startup_seconds


class _StageRun:
    """One stage from its start to its limits."""

    def __init__(self, stage: Stage, evaluator: Evaluator, limits: Limits, record: _Record):
        self._stage = stage
        self._evaluator = evaluator
        self._limits = limits
        self._record = record
        self._trial_seconds = 0.0  # of the last trials; the first are taken to be short

    def go(self, interruption: Interruption, on_progress: Callable[[Progress], None]) -> None:
        """Proposes, evaluates and learns; raises Interrupted at the first signal."""
        record = self._record
        with interruption.raising():
            policy = self._stage.start(record.best.placement.device_of_op if record.best else None)
        while record.best is None or not _is_over(record, self._limits):
            self._tell_what_is_left(policy)
            with interruption.raising():
                proposal = policy.propose()
            if proposal is None:
                return
            if isinstance(proposal, Burst):
                record.num_trials += proposal.num_simulated
            outcomes = self._evaluated(proposal, interruption)
            is_late = record.seconds >= self._limits.budget_seconds
            scalars: Mapping[str, float] = {}
            if len(outcomes) == len(proposal.device_of_op) and not is_late:
                with interruption.raising():
                    scalars = policy.learn(proposal, outcomes)
            on_progress(self._progress(scalars))
            if _is_over(record, self._limits):
                return

    def _tell_what_is_left(self, policy: Policy) -> None:
        if isinstance(policy, PacedPolicy):
            limits, record = self._limits, self._record
            trials = limits.max_trials
            left = None if trials is None else trials - record.num_trials
            policy.allow(limits.budget_seconds - record.seconds, left)

    def _evaluated(self, proposal: Proposal, interruption: Interruption) -> list[Outcome]:
        """Outcomes of as many placements, at least one, as the limits allow."""
        record, limits = self._record, self._limits
        placements = proposal.device_of_op
        if limits.max_trials is not None:
            placements = placements[: limits.max_trials - record.num_trials]
        outcomes: list[Outcome] = []
        while len(outcomes) < len(placements) and not (outcomes and _is_over(record, limits)):
            part = placements[len(outcomes) :][: self._num_affordable()]
            began = record.seconds
            with interruption.raising():
                found = self._evaluator.evaluate(part)
            self._trial_seconds = (record.seconds - began) / len(part)
            for device_of_op, outcome in zip(part, found, strict=True):
                record.add(self._stage.name, device_of_op, outcome)
            outcomes += found
        return outcomes

    def _num_affordable(self) -> int | None:
        """How many trials are expected to end in time, at least one; None for any number."""
        left = self._limits.budget_seconds - self._record.seconds
        if self._trial_seconds <= 0.0 or not math.isfinite(left):
            return None
        return max(int(left / self._trial_seconds), 1)

    def _progress(self, scalars: Mapping[str, float]) -> Progress:
        record = self._record
        return Progress(
            self._stage.name,
            record.num_trials,
            record.num_infeasible,
            record.seconds,
            record.best_seconds,
            scalars,
        )

"""The search loop: a policy proposes, an evaluator answers, the best feasible placement is kept."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from graphs.errors import CheckpointError
from graphs.op_graph import IntArray
from graphs.placement import Measurement, Outcome
from tfplace.interruption import Interrupted, Interruption, interruptible
from tfplace.search.kept.folder import SearchFolder
from tfplace.search.kept.state import StageStart
from tfplace.search.trial import (
    Burst,
    DivergedError,
    Evaluator,
    PacedPolicy,
    Policy,
    Proposal,
    ResumablePolicy,
    Trial,
)
from tfplace.search.trial_log import TrialLog

WENT_ON = "went on with a search that was kept after"

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
class SearchMoment:
    """A moment of a search.

    Attributes:
      stage: name of the running stage.
      num_trials, num_infeasible: so far.
      seconds: since the search began.
      best_step_seconds: of the best feasible placement, inf before there is one.
      scalars: what the policy reported of its last update.
      mean_step_seconds: of the last batch's feasible placements; nan where there was none.
    """

    stage: str
    num_trials: int
    num_infeasible: int
    seconds: float
    best_step_seconds: float
    scalars: Mapping[str, float]
    mean_step_seconds: float = math.nan


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
      best: the best feasible trial, None where there was none.
      best_stage: the stage that found it.
      least_infeasible: an infeasible trial to explain a failure with, or None.
      num_trials, num_infeasible, seconds: counts and wall time.
      history: [[trial, seconds, best_step_seconds]...], one row per improvement and the end.
      interrupted: whether Ctrl-C or SIGTERM ended it.
      notes: why stages ended early, a sentence each.
      stages: [(name, trials of the search, its seconds)...] at the end of each stage that ran.
    """

    best: Trial | None
    best_stage: str
    least_infeasible: Trial | None
    num_trials: int
    num_infeasible: int
    seconds: float
    history: Sequence[tuple[int, float, float]]
    interrupted: bool
    notes: Sequence[str] = ()
    stages: Sequence[tuple[str, int, float]] = ()


def search(
    stages: Sequence[Stage],
    evaluator: Evaluator,
    limits: Limits,
    on_progress: Callable[[SearchMoment], None] = lambda progress: None,
    on_trial: Callable[[Trial], None] | None = None,
    folder: SearchFolder | None = None,
) -> SearchResult:
    """Runs the stages one after another, each from the best found so far.

    The first Ctrl-C or SIGTERM ends the search at once; what was found is returned. The budget is
    kept to one trial: a batch that is expected to take longer than what is left is evaluated in
    parts, and nothing is learned that no later proposal could use. A policy that diverges ends its
    stage, which is logged and noted.

    With a folder the search is kept in it after every update, and goes on with what it holds: the
    same trials follow as if it had never stopped. The limits are those of all runs together.

    Raises:
      CheckpointError: a policy does not take what the folder holds.
    """
    state = None if folder is None else folder.state
    record = TrialLog(time.monotonic(), on_trial)
    if state is not None:
        record.go_on(state)
        record.notes = [note for note in record.notes if not note.startswith(WENT_ON)]
        record.notes.append(f"{WENT_ON} {state.num_trials:,} trials, {state.seconds:.0f} s")
    with interruptible() as interruption, interruption.held():
        for number, stage in enumerate(stages):
            goes_on = state is not None and state.stage.number == number
            if state is not None and number < state.stage.number:
                continue
            if interruption.seen or _is_over(record, limits) or _is_too_late(stage, record, limits):
                if goes_on:
                    record.stages.append((stage.name, record.num_trials, record.seconds))
                continue
            start = state.stage if state is not None and goes_on else record.stage_start(number)
            run = _StageRun(stage, evaluator, _stage_limits(stage, start, limits), record)
            try:
                run.go(interruption, on_progress, _Kept(start, folder, goes_on))
            except Interrupted:
                continue
            except DivergedError as error:
                record.notes.append(f"{stage.name} ended after {record.num_trials} trials: {error}")
                _LOGGER.warning("%s", record.notes[-1])
            finally:
                record.stages.append((stage.name, record.num_trials, record.seconds))
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
            notes=tuple(record.notes),
            stages=tuple(record.stages),
        )


def _stage_limits(stage: Stage, start: StageStart, limits: Limits) -> Limits:
    seconds = start.seconds + (limits.budget_seconds - start.seconds) * stage.share
    if limits.max_trials is None:
        return Limits(seconds)
    trials = math.ceil((limits.max_trials - start.num_trials) * stage.share)
    return Limits(seconds, start.num_trials + trials)


def _is_over(record: TrialLog, limits: Limits) -> bool:
    out_of_trials = limits.max_trials is not None and record.num_trials >= limits.max_trials
    return out_of_trials or record.seconds >= limits.budget_seconds


def _is_too_late(stage: Stage, record: TrialLog, limits: Limits) -> bool:
    """Whether a stage could not even begin in what is left; something else was found then."""
    left = limits.budget_seconds - record.seconds
    return record.best is not None and left < stage.startup_seconds


@dataclasses.dataclass(frozen=True)
class _Kept:
    """What is kept of a stage: nothing without a folder.

    Attributes:
      start: where the stage began.
      folder: see `search`.
      goes_on: whether the folder holds the stage's earlier part.
    """

    start: StageStart
    folder: SearchFolder | None
    goes_on: bool

    def policy(self, stage: Stage) -> Policy:
        """The stage's policy, as it was after its last update."""
        policy = stage.start(self.start.device_of_op)
        state = self.folder.state if self.folder is not None and self.goes_on else None
        if state is not None and state.policy and isinstance(policy, ResumablePolicy):
            try:
                policy.set_state(state.policy)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise CheckpointError(
                    f"going on with a search: {stage.name} can't take up the state that was kept "
                    f"({error}); give another --checkpoint_dir"
                ) from None
        return policy

    def save(self, record: TrialLog, policy: Policy | None) -> None:
        """Keeps the search; without a policy, it is a stage's beginning."""
        if self.folder is not None:
            found = policy.state() if isinstance(policy, ResumablePolicy) else {}
            self.folder.save(record.state(self.start, found))


class _StageRun:
    """One stage from its start to its limits."""

    def __init__(self, stage: Stage, evaluator: Evaluator, limits: Limits, record: TrialLog):
        self._stage = stage
        self._evaluator = evaluator
        self._limits = limits
        self._record = record
        self._trial_seconds = 0.0  # of the last trials; the first are taken to be short

    def go(
        self, interruption: Interruption, on_progress: Callable[[SearchMoment], None], kept: _Kept
    ) -> None:
        """Proposes, evaluates and learns; raises Interrupted at the first signal."""
        record = self._record
        if not kept.goes_on:
            kept.save(record, None)
        with interruption.raising():
            policy = kept.policy(self._stage)
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
                kept.save(record, policy)
            on_progress(self._progress(scalars, outcomes))
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

    def _progress(self, scalars: Mapping[str, float], outcomes: Sequence[Outcome]) -> SearchMoment:
        record = self._record
        steps = [o.step_seconds for o in outcomes if isinstance(o, Measurement)]
        return SearchMoment(
            self._stage.name,
            record.num_trials,
            record.num_infeasible,
            record.seconds,
            record.best_seconds,
            scalars,
            sum(steps) / len(steps) if steps else math.nan,
        )

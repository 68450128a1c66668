"""The search loop: a policy proposes, an evaluator answers, the best feasible placement is kept."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from graphs.counted import counted
from graphs.errors import CheckpointError
from graphs.op_graph import IntArray
from graphs.problem import Measurement, Outcome
from tfplace.interruption import Interrupted, Interruption, interruptible
from tfplace.search.kept.state import SearchState, StageStart
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
from tfplace.search.trial_log import SearchResult, TrialLog

CONTINUED = "went on with a search that was kept after"
"""How the note of a search begins that went on with an earlier one; only the last is reported."""

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
    """

    name: str
    start: Callable[[IntArray | None], Policy]
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class SearchMoment:
    """What a search has reached after an update of its policy, for progress displays and logs.

    Attributes:
      stage: name of the running stage.
      num_trials: evaluated placements so far.
      num_infeasible: how many of them can't run.
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


class Keeper(Protocol):
    """Where a search keeps itself so that it can go on later; `kept.folder` writes to the disk."""

    @property
    def state(self) -> SearchState | None:
        """Where an earlier search stopped that this one continues; None for a new search."""
        ...

    def note_trial(self, trial: Trial) -> None:
        """Called after each trial."""
        ...

    def save(self, state: SearchState) -> None:
        """Called at the beginning of each stage and after each update of its policy."""
        ...


def search(
    stages: Sequence[Stage],
    evaluator: Evaluator,
    limits: Limits,
    on_progress: Callable[[SearchMoment], None] = lambda moment: None,
    keeper: Keeper | None = None,
) -> SearchResult:
    """Runs the stages one after another, each from the best placement found so far.

    The first Ctrl-C or SIGTERM ends the search at once; what was found is returned. The budget is
    kept to one trial: a batch that is expected to take longer than what is left is evaluated in
    parts, and nothing is learned that no later proposal could use. A policy that diverges ends its
    stage, which is logged and noted.

    Args:
      stages: what runs, in this order.
      limits: of this search and of the earlier ones that it continues, together.
      on_progress: called after each update of the running policy.
      keeper: takes the search's state after every update. Where it holds an earlier state, the
        search goes on from there: the same trials follow as if it had never stopped.

    Raises:
      CheckpointError: a policy does not take the state that was kept.
    """
    earlier = None if keeper is None else keeper.state
    log = TrialLog(time.monotonic(), None if keeper is None else keeper.note_trial)
    if earlier is not None:
        log.resume(earlier)
        log.notes = [note for note in log.notes if not note.startswith(CONTINUED)]
        log.notes.append(
            f"{CONTINUED} {counted(earlier.num_trials, 'trial')}, {earlier.seconds:.0f} s"
        )
    with interruptible() as interruption, interruption.held():
        for number, stage in enumerate(stages):
            if earlier is not None and number < earlier.stage.number:
                continue
            is_continued = earlier is not None and number == earlier.stage.number
            if interruption.seen or _is_over(log, limits):
                if is_continued:
                    log.end_stage(stage.name)
                continue
            start = earlier.stage if earlier and is_continued else log.stage_start(number)
            run = _StageRun(stage, evaluator, _stage_limits(stage, start, limits), log)
            try:
                run.go(interruption, on_progress, _KeptStage(start, keeper, is_continued))
            except Interrupted:
                continue
            except DivergedError as error:
                log.notes.append(
                    f"{stage.name} ended after {counted(log.num_trials, 'trial')}: {error}"
                )
                _LOGGER.warning("%s", log.notes[-1])
            finally:
                log.end_stage(stage.name)
        return log.result(interruption.seen)


def _stage_limits(stage: Stage, start: StageStart, limits: Limits) -> Limits:
    """When a stage ends that began at `start`: its share of what was left then."""
    seconds = start.seconds + (limits.budget_seconds - start.seconds) * stage.share
    if limits.max_trials is None:
        return Limits(seconds)
    trials = math.ceil((limits.max_trials - start.num_trials) * stage.share)
    return Limits(seconds, start.num_trials + trials)


def _is_over(log: TrialLog, limits: Limits) -> bool:
    out_of_trials = limits.max_trials is not None and log.num_trials >= limits.max_trials
    return out_of_trials or log.seconds >= limits.budget_seconds


@dataclasses.dataclass(frozen=True)
class _KeptStage:
    """How one stage of a search is kept."""

    start: StageStart  # where the stage began
    keeper: Keeper | None  # takes its state; None where nothing is kept
    is_continued: bool  # whether the keeper holds the stage's earlier part

    def policy(self, stage: Stage) -> Policy:
        """The stage's policy; where the stage is continued, as it was after its last update."""
        policy = stage.start(self.start.device_of_op)
        state = self.keeper.state if self.keeper is not None and self.is_continued else None
        if state is not None and state.policy and isinstance(policy, ResumablePolicy):
            try:
                policy.set_state(state.policy)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise CheckpointError(
                    f"going on with a search: {stage.name} can't take up the state that was kept "
                    f"({error}); give another --checkpoint_dir"
                ) from None
        return policy

    def save(self, log: TrialLog, policy: Policy | None) -> None:
        """Keeps the search; without a policy, it is the beginning of a stage."""
        if self.keeper is not None:  # a policy's state may be large: it is asked for only then
            policy_state = policy.state() if isinstance(policy, ResumablePolicy) else {}
            self.keeper.save(log.state(self.start, policy_state))


class _StageRun:
    """One stage from its start to its limits."""

    def __init__(self, stage: Stage, evaluator: Evaluator, limits: Limits, log: TrialLog):
        self._stage = stage
        self._evaluator = evaluator
        self._limits = limits
        self._log = log
        self._trial_seconds = 0.0  # of the last trials; the first are taken to be short

    def go(
        self,
        interruption: Interruption,
        on_progress: Callable[[SearchMoment], None],
        kept: _KeptStage,
    ) -> None:
        """Proposes, evaluates and learns; raises Interrupted at the first signal."""
        log = self._log
        if not kept.is_continued:
            kept.save(log, None)
        with interruption.raising():
            policy = kept.policy(self._stage)
        while log.best is None or not _is_over(log, self._limits):
            self._tell_what_is_left(policy)
            with interruption.raising():
                proposal = policy.propose()
            if proposal is None:
                return
            if isinstance(proposal, Burst):
                log.num_trials += proposal.num_simulated
            outcomes = self._evaluated(proposal, interruption)
            is_late = log.seconds >= self._limits.budget_seconds
            scalars: Mapping[str, float] = {}
            if len(outcomes) == len(proposal.device_of_op) and not is_late:
                with interruption.raising():
                    scalars = policy.learn(proposal, outcomes)
                kept.save(log, policy)
            on_progress(self._moment(scalars, outcomes))
            if _is_over(log, self._limits):
                return

    def _tell_what_is_left(self, policy: Policy) -> None:
        if isinstance(policy, PacedPolicy):
            limits, log = self._limits, self._log
            trials = limits.max_trials
            left = None if trials is None else trials - log.num_trials
            policy.allow(limits.budget_seconds - log.seconds, left)

    def _evaluated(self, proposal: Proposal, interruption: Interruption) -> list[Outcome]:
        """Outcomes of as many placements, at least one, as the limits allow."""
        log, limits = self._log, self._limits
        placements = proposal.device_of_op
        if limits.max_trials is not None:
            placements = placements[: limits.max_trials - log.num_trials]
        outcomes: list[Outcome] = []
        while len(outcomes) < len(placements) and not (outcomes and _is_over(log, limits)):
            part = placements[len(outcomes) :][: self._num_affordable()]
            began = log.seconds
            with interruption.raising():
                answers = self._evaluator.evaluate(part)
            self._trial_seconds = (log.seconds - began) / len(part)
            for device_of_op, outcome in zip(part, answers, strict=True):
                log.add(self._stage.name, device_of_op, outcome)
            outcomes += answers
        return outcomes

    def _num_affordable(self) -> int | None:
        """How many trials are expected to end in time, at least one; None for any number."""
        left = self._limits.budget_seconds - self._log.seconds
        if self._trial_seconds <= 0.0 or not math.isfinite(left):
            return None
        return max(int(left / self._trial_seconds), 1)

    def _moment(self, scalars: Mapping[str, float], outcomes: Sequence[Outcome]) -> SearchMoment:
        log = self._log
        steps = [o.step_seconds for o in outcomes if isinstance(o, Measurement)]
        return SearchMoment(
            self._stage.name,
            log.num_trials,
            log.num_infeasible,
            log.seconds,
            log.best_seconds,
            scalars,
            sum(steps) / len(steps) if steps else math.nan,
        )

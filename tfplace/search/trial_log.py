"""What a search has seen so far, and that it is put together again from what was kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Measurement, Outcome, Placement
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.kept.state import SearchState, StageStart
from tfplace.search.trial import Trial


class TrialLog:
    """Trials as they come."""

    def __init__(self, started: float, on_trial: Callable[[Trial], None] | None):
        self.started = started
        self.on_trial = on_trial
        self.best: Trial | None = None
        self.best_stage = ""
        self.least_infeasible: Trial | None = None
        self.num_trials = 0
        self.num_infeasible = 0
        self.history: list[tuple[int, float, float]] = []
        self.notes: list[str] = []
        self.stages: list[tuple[str, int, float]] = []

    def state(self, stage: StageStart, policy: Snapshot) -> SearchState:
        """All of it, between two updates of a policy."""
        return SearchState(
            stage=stage,
            policy=policy,
            num_trials=self.num_trials,
            num_infeasible=self.num_infeasible,
            seconds=self.seconds,
            best=self.best,
            best_stage=self.best_stage,
            least_infeasible=self.least_infeasible,
            history=list(self.history),
            notes=list(self.notes),
            stages=list(self.stages),
        )

    def go_on(self, state: SearchState) -> None:
        """Is where `state` was taken; its seconds count as this search's."""
        self.started -= state.seconds
        self.num_trials, self.num_infeasible = state.num_trials, state.num_infeasible
        self.best, self.best_stage = state.best, state.best_stage
        self.least_infeasible = state.least_infeasible
        self.history, self.notes = list(state.history), list(state.notes)
        self.stages = list(state.stages)

    def stage_start(self, number: int) -> StageStart:
        """A stage that begins here."""
        best = None if self.best is None else self.best.placement.device_of_op
        return StageStart(number, self.num_trials, self.seconds, best)

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
                placement = Placement(np.array(device_of_op, dtype=np.int32))
                self.least_infeasible = Trial(index, self.seconds, placement, outcome)
        elif outcome.step_seconds < self.best_seconds:
            placement = Placement(np.array(device_of_op, dtype=np.int32))
            self.best = Trial(index, self.seconds, placement, outcome)
            self.best_stage = stage
            self.history.append((index, self.seconds, outcome.step_seconds))
        if self.on_trial is not None:
            self.on_trial(Trial(index, self.seconds, Placement(device_of_op), outcome))


def _less_bad(outcome: Infeasible, trial: Trial | None) -> bool:
    """A placement that only lacks memory says more than one that breaks a constraint."""
    if trial is None:
        return True
    other = trial.outcome
    assert isinstance(other, Infeasible)
    if (outcome.reason == "memory") != (other.reason == "memory"):
        return outcome.reason == "memory"
    return sum(outcome.peak_bytes) < sum(other.peak_bytes)

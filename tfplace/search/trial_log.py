"""The trials of a search as they come, and what the search found in the end."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Outcome, Placement
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.kept.state import SearchedSoFar, SearchState, StageStart
from tfplace.search.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult(SearchedSoFar):
    """What a search found in the end.

    Attributes:
      interrupted: whether Ctrl-C or SIGTERM ended it.
    """

    interrupted: bool


class TrialLog:
    """Counts and times of a running search, its best trial and its history.

    Attributes:
      started: time.monotonic() when the search began, earlier runs' seconds before it.
      on_trial: called with each trial, or None.
      best, best_stage, least_infeasible, num_trials, num_infeasible, history, notes, stages: as
        in SearchedSoFar.
    """

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

    @property
    def seconds(self) -> float:
        """Since the search began; seconds of earlier runs that it continues are counted."""
        return time.monotonic() - self.started

    @property
    def best_seconds(self) -> float:
        """Step time of the best feasible trial; inf before there is one."""
        if self.best is None or not isinstance(self.best.outcome, Measurement):
            return math.inf
        return self.best.outcome.step_seconds

    def add(self, stage: str, device_of_op: IntArray, outcome: Outcome) -> None:
        """Takes the outcome of one placement i4[N] that a stage proposed."""
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

    def stage_start(self, number: int) -> StageStart:
        """The start of a stage that begins now."""
        best = None if self.best is None else self.best.placement.device_of_op
        return StageStart(number, self.num_trials, self.seconds, best)

    def end_stage(self, name: str) -> None:
        """Notes that a stage ends now."""
        self.stages.append((name, self.num_trials, self.seconds))

    def _so_far(self) -> dict[str, Any]:
        """The fields of SearchedSoFar; later trials don't change them."""
        found = {each.name: getattr(self, each.name) for each in dataclasses.fields(SearchedSoFar)}
        return {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}

    def state(self, stage: StageStart, policy: Snapshot) -> SearchState:
        """All of it, between two updates of the policy whose state is `policy`."""
        return SearchState(stage=stage, policy=policy, **self._so_far())

    def resume(self, state: SearchState) -> None:
        """Goes back to where `state` was taken; its seconds count as this search's."""
        self.started -= state.seconds
        self.num_trials, self.num_infeasible = state.num_trials, state.num_infeasible
        self.best, self.best_stage = state.best, state.best_stage
        self.least_infeasible = state.least_infeasible
        self.history, self.notes = list(state.history), list(state.notes)
        self.stages = list(state.stages)

    def result(self, interrupted: bool) -> SearchResult:
        """What the search found; its history ends with a row of now."""
        end = (max(self.num_trials - 1, 0), self.seconds, self.best_seconds)
        found = {**self._so_far(), "history": (*self.history, end)}
        return SearchResult(interrupted=interrupted, **found)


def _less_bad(outcome: Infeasible, trial: Trial | None) -> bool:
    """Whether an outcome explains a failure better: lacking memory says more than a constraint."""
    if trial is None:
        return True
    other = trial.outcome
    assert isinstance(other, Infeasible)
    if (outcome.reason == "memory") != (other.reason == "memory"):
        return outcome.reason == "memory"
    return sum(outcome.peak_bytes) < sum(other.peak_bytes)

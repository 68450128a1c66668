"""Placements that need no learning: what every search has to beat."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible, Measurement, Outcome
from graphs.problem import Problem
from tfplace.algorithm_table import policy_of
from tfplace.report.report import Baseline
from tfplace.search import Limits, Stage, search
from tfplace.task import Task
from tfplace.trial import Evaluator

NAMES = ("given", "single", "topological", "etf", "local_search")
LOCAL_SEARCH_SHARE = 0.1
LOCAL_SEARCH_MAX_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A placement with a name.

    Attributes:
      name: a baseline's, or the algorithm's.
      device_of_op: i4[N].
      outcome: what the simulator says of it.
    """

    name: str
    device_of_op: IntArray
    outcome: Outcome

    @property
    def step_seconds(self) -> float:
        """Predicted; inf where it can't run."""
        return self.outcome.step_seconds if isinstance(self.outcome, Measurement) else math.inf


def baseline_candidates(
    task: Task,
    evaluator: Evaluator,
    budget_seconds: float,
    seed: int,
    on_name: Callable[[str], None] = lambda name: None,
) -> list[Candidate]:
    """The best placement of each baseline; an infeasible one says why.

    Args:
      task: the problem.
      evaluator: the simulator.
      budget_seconds: of the whole search; annealing gets a small share of it.
      seed: for annealing.
      on_name: told which baseline begins.
    """
    candidates: list[Candidate] = []
    for name in NAMES:
        on_name(name)
        seconds = math.inf
        if name == "local_search":
            seconds = min(LOCAL_SEARCH_MAX_SECONDS, budget_seconds * LOCAL_SEARCH_SHARE)
        best_so_far = best_of(candidates)
        start = None if best_so_far is None else best_so_far.device_of_op
        candidates.append(_run(name, task, evaluator, Limits(seconds), seed, start))
    return candidates


def _run(
    name: str,
    task: Task,
    evaluator: Evaluator,
    limits: Limits,
    seed: int,
    start: IntArray | None,
) -> Candidate:
    if name == "given":
        placement = task.given
        return Candidate(name, placement, evaluator.evaluate(placement[None])[0])
    stage = Stage(name, lambda best: policy_of(name, task, seed, start))
    result = search([stage], evaluator, limits)
    if result.interrupted:
        raise KeyboardInterrupt
    if result.best is not None:
        return Candidate(name, result.best.placement.device_of_op, result.best.outcome)
    outcome = result.least_infeasible or Infeasible("error", f"{name} proposed no placement")
    return Candidate(name, task.given, outcome)


def best_single(task: Task, evaluator: Evaluator) -> Candidate:
    """The best device that holds everything by itself."""
    return _run("single", task, evaluator, Limits(math.inf), 0, None)


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The fastest feasible one; the earlier of equals; None where none can run."""
    feasible = [c for c in candidates if math.isfinite(c.step_seconds)]
    return min(feasible, key=lambda c: c.step_seconds, default=None)


def as_reported(candidate: Candidate, problem: Problem) -> Baseline:
    """A candidate as report.json has it."""
    outcome = candidate.outcome
    peaks = peak_of_device(outcome, problem)
    if isinstance(outcome, Measurement):
        return Baseline(outcome.step_seconds, True, "", peaks)
    return Baseline(None, False, outcome.message, peaks)


def peak_of_device(outcome: Outcome, problem: Problem) -> Mapping[str, int]:
    """{device: peak bytes}, empty where they are not known."""
    return dict(zip(problem.device_names, (int(b) for b in outcome.peak_bytes), strict=False))


def is_on_one_device(device_of_op: IntArray, problem: Problem) -> bool:
    """Whether everything that is free to choose lies on one device."""
    free = problem.allowed().sum(axis=1) > 1
    return len(np.unique(device_of_op[free])) <= 1

"""Judges what a policy is worth on graphs that it has never seen, without learning on them."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.placement import Measurement, Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned.config import PlacetoConfig
from tfplace.algorithms.learned.placeto import Placeto
from tfplace.algorithms.placers.one_shot import OneShot, Random, single_devices
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Trial
from tfplace.simulation.evaluator import SimulatingEvaluator


@dataclasses.dataclass(frozen=True)
class Score:
    """Step times relative to the best single device's; inf where nothing fits.

    Attributes:
      final: of the placement at the end of an episode.
      best: of the fastest placement on the way to it.
    """

    final: float
    best: float


class HeldOut:
    """One held-out problem: what one device, random placements and policies reach on it."""

    def __init__(self, problem: Problem, config: PlacetoConfig, seed: int) -> None:
        """Prepares the problem; the best single device is the measure."""
        self._problem = problem
        self._seed = seed
        self._evaluator = SimulatingEvaluator(problem)
        self._placeto = Placeto(problem, seed, config)
        self._begin = self._placeto.state()
        stage = Stage("single", lambda best: OneShot(lambda: single_devices(problem)))
        self._single = _seconds_of_best(search([stage], self._evaluator, Limits(math.inf)).best)

    @property
    def num_trials(self) -> int:
        """Placements of an episode: the start, and one per group."""
        return self._placeto.grouped.grouping.num_groups + 1

    def policy(self, weights: Mapping[str, np.ndarray]) -> Score:
        """One episode of a policy that learns nothing on the way."""
        self._placeto.set_state(self._begin)
        self._placeto.set_weights(weights)
        seconds = []
        for trial in range(self.num_trials):
            proposal = self._placeto.propose()
            if proposal is None:
                break
            (outcome,) = self._evaluator.evaluate(proposal.device_of_op)
            seconds.append(_seconds(outcome))
            # Placeto updates its weights when it is told the last outcome of an episode.
            if trial < self.num_trials - 1:
                self._placeto.learn(proposal, [outcome])
        return Score(seconds[-1] / self._single, min(seconds) / self._single)

    def random(self) -> float:
        """The best of as many random placements of the same groups, relative to one device."""
        num_groups = self.num_trials - 1
        policy = Random(self._problem, self._seed, num_groups, batch_size=self.num_trials)
        outcomes = self._evaluator.evaluate(policy.propose().device_of_op)
        return min(map(_seconds, outcomes)) / self._single


def judged(
    held_out: Sequence[HeldOut], weights: Mapping[str, np.ndarray]
) -> dict[str, float | None]:
    """Geometric means over held-out problems, JSON-ready: {"final", "best"}; null for infinite."""
    scores = [instance.policy(weights) for instance in held_out]
    return {
        "final": geometric_mean([score.final for score in scores]),
        "best": geometric_mean([score.best for score in scores]),
    }


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean; None where a value is not finite: some placement did not run."""
    if not all(0.0 < value < math.inf for value in values):
        return None
    return statistics.geometric_mean(values)


def _seconds(outcome: Outcome) -> float:
    return outcome.step_seconds if isinstance(outcome, Measurement) else math.inf


def _seconds_of_best(trial: Trial | None) -> float:
    """Step time of the best single device; 1.0 where none runs all ops: ratios stay finite."""
    seconds = math.inf if trial is None else _seconds(trial.outcome)
    return seconds if seconds < math.inf else 1.0

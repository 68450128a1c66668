"""The loop's rounds on devices that are present: one child, which holds what it has prepared."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Problem
from tfplace.choosing.baselines import Plan, annealed
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.plan import Runs
from tfplace.interruption import Interrupted
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.run_measurement import held_runs, measure_variants
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.search.search import Limits

MAX_HELD = 16
"""Placements that are held at a time: the machine's speed may change while so many are stepped."""
COPIES_OF_VARIABLES = 2
"""A prepared placement holds its variables, and a step their gradients."""
ROUND = StepLimits(warmup_steps=1, min_steps=5, max_steps=10, budget_seconds=8.0)
FIRST_ROUND = dataclasses.replace(ROUND, min_steps=3, budget_seconds=5.0)
"""Several placements a little teach more of the machine than few of them well."""

BEGIN_SECONDS, SECONDS_PER_OP = 3.0, 1e-3
"""What processes take to start, and a placement to be prepared, before any was measured."""
FIRST_STEPS = 2
"""Preparing makes a step, and a first one takes longer."""
SLOWER, SLOWER_THAN_MEASURED = 1.5, 1.15
"""How much longer than predicted steps may take before any was measured, and how much longer than
measured ones afterwards."""
STEP_TIMEOUT_SECONDS, STALLED = 10.0, 20.0
"""A step may take this long, or so many times as long as predicted: then it stalls."""


def num_fitting(problem: Problem) -> int:
    """Placements whose variables fit into the fullest device's memory together, up to MAX_HELD."""
    persistent = int(problem.graph.op_persistent_bytes.sum())
    usable = float(np.min(problem.usable_bytes()))
    return max(1, min(MAX_HELD, int(usable // max(COPIES_OF_VARIABLES * persistent, 1))))


class RealRuns:
    """Measures rounds, and says beforehand how long one takes.

    Attributes:
      held: the child.
      slower: how much longer than predicted steps are expected to take.
    """

    def __init__(
        self,
        prepared: PreparedModel,
        held: HeldRuns,
        seed: int,
        model: ForwardModel,
        progress: Progress,
    ) -> None:
        """Starts nothing yet; `held` is where runs stay prepared."""
        self.held = held
        self._prepared, self._progress = prepared, progress
        self._model, self._seed = model, seed
        self._predicted: dict[bytes, float] = {}
        self.slower = SLOWER
        self._known: set[bytes] = set()
        self._prepare_seconds = SECONDS_PER_OP * prepared.problem.num_ops

    def measure(self, plans: Sequence[Plan]) -> Runs:
        """Steps of placements in turn."""
        self._progress.say(f"timing {len(plans)} placements on {self._prepared.cluster.name}")
        began, num_new = time.monotonic(), self._num_new(plans)
        variants = {plan.name: self._prepared.placed_run_graph(plan.device_of_op) for plan in plans}
        run, cluster = self._prepared.training_run(), self._prepared.cluster
        results = measure_variants(variants, run, cluster, self._limits(plans), held=self.held)
        self._known |= {plan.key for plan in plans}
        found = [results[name] for name in variants]
        runs = [each if isinstance(each, Infeasible) else each.step_seconds for each in found]
        self._learn(time.monotonic() - began, num_new, plans, runs)
        return runs

    def _limits(self, plans: Sequence[Plan]) -> StepLimits:
        limits = ROUND if self._known else FIRST_ROUND
        most = max(self.held.process.seconds_left / 2, STEP_TIMEOUT_SECONDS)
        slowest = max(self.step_seconds(plan) for plan in plans)
        return dataclasses.replace(
            limits,
            seed=self._seed,
            timeout_seconds=max(STEP_TIMEOUT_SECONDS, STALLED * slowest),
            prepare_timeout_seconds=min(most, limits.prepare_timeout_seconds),
        )

    def seconds_of(self, plans: Sequence[Plan]) -> float:
        """How long a round of these takes, roughly."""
        begin = 0.0 if self.held.process.alive else BEGIN_SECONDS
        limits = ROUND if self._known else FIRST_ROUND
        num_steps = FIRST_STEPS + limits.warmup_steps + limits.min_steps
        steps = num_steps * self.slower * sum(self.step_seconds(plan) for plan in plans)
        return begin + self._num_new(plans) * self._prepare_seconds + steps

    @property
    def than_predicted(self) -> float:
        """How many times as long as predicted steps take, as far as was measured."""
        return self.slower if self._known else 1.0

    def step_seconds(self, plan: Plan) -> float:
        """Predicted; of what is to be found yet, that of the slowest that is known."""
        if not len(plan.device_of_op):
            return max(self._predicted.values(), default=0.0)
        if plan.key not in self._predicted:
            seconds = self._model.seconds(self._model.as_taken, plan.device_of_op[None])[0]
            self._predicted[plan.key] = float(seconds)
        return self._predicted[plan.key]

    def _num_new(self, plans: Sequence[Plan]) -> int:
        return sum(plan.key not in self._known for plan in plans)

    def _learn(self, seconds: float, num_new: int, plans: Sequence[Plan], runs: Runs) -> None:
        """How long preparing a placement really takes, and a step."""
        ran = [
            (self.step_seconds(plan), each)
            for plan, each in zip(plans, runs, strict=True)
            if not isinstance(each, Infeasible) and len(each)
        ]
        if ran:
            ratios = [np.median(each) / predicted for predicted, each in ran]
            self.slower = SLOWER_THAN_MEASURED * float(np.median(ratios))
            stepped = sum(float(np.sum(each)) for _, each in ran)
            if num_new:
                self._prepare_seconds = max(seconds - stepped, 0.0) / num_new


def child_for(prepared: PreparedModel, seconds: float) -> HeldRuns:
    """A child that holds as many placements as fit, for so many seconds."""
    return held_runs(prepared.cluster, seconds, num_fitting(prepared.problem))


class Annealing:
    """Searches of the loop: annealing for a few seconds from what is known."""

    def __init__(self, seconds: float, seed: int, progress: Progress) -> None:
        """Args: seconds: of each search; seed: of the moves; progress: is told of it."""
        self.seconds = seconds
        self._seed, self._progress = seed, progress

    def __call__(self, problem: Problem, starts: IntArray, number: int) -> IntArray | None:
        """The best placement that fits on one machine; see `plan.Search`."""
        if number == 0:
            self._progress.say("searching on from the best, with links and devices as measured")
        result = annealed(problem, starts, Limits(self.seconds), self._seed + number)
        if result.interrupted:
            raise Interrupted
        return None if result.best is None else result.best.placement.device_of_op

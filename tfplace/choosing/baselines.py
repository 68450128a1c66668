"""Placements that need no learning: what every search has to beat."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Outcome, Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.table import annealing_from, policy_of
from tfplace.budget import PARTS
from tfplace.interruption import Interrupted, interruptible
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Evaluator
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.evaluator import SimulatingEvaluator

GIVEN, SINGLE = "given", "single"
NAMES = (GIVEN, SINGLE, "topological", "etf", "local_search")
LEAST_TRIALS, MOST_SIMULATED_OPS = 1000, 20_000_000
"""Where trials are limited, local search ends after these and not by the clock, so that a seed
gives the same everywhere: simulating so many ops takes about as long as the most seconds."""
AS_GOOD = 1.03
"""Devices of a type that were measured to differ by so much are taken for equal."""
NOT_TRIED = "not tried: interrupted"
LEAST_SECONDS = 1e-3
"""So short that one trial uses it up, and still not nothing."""
# Measured on nmt with 8 layers and k80x4 (21,689 ops, 40,000 uses, 5 devices): m-TOPO took 0.06 s,
# m-ETF 0.27 s. The others begin with a placement that is there.
SECONDS_PER_USE_AND_DEVICE: Mapping[str, float] = {"topological": 3e-7, "etf": 1.4e-6}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Attributes: name: how a placement was found; device_of_op: i4[N]."""

    name: str
    device_of_op: IntArray

    @property
    def key(self) -> bytes:
        """The same for equal placements."""
        return self.device_of_op.astype(np.int32).tobytes()


@dataclasses.dataclass(frozen=True)
class Candidate(Plan):
    """A placement, and what the simulator says of it.

    Attributes:
      outcome: that.
    """

    outcome: Outcome

    @property
    def step_seconds(self) -> float:
        """Predicted; inf where it can't run."""
        return self.outcome.step_seconds if isinstance(self.outcome, Measurement) else math.inf


def baseline_candidates(
    instance: Instance,
    evaluator: Evaluator,
    budget_seconds: float,
    seed: int,
    max_trials: int | None = None,
) -> list[Candidate]:
    """The best placement of each baseline; an infeasible one says why.

    One that is expected to end after the budget, or comes after Ctrl-C, is not tried and says so.

    Args:
      evaluator: the simulator.
      budget_seconds: of the whole search; annealing gets a small share of it.
      max_trials: of the whole search; None for no limit.

    Raises:
      Interrupted: a signal came before a placement that runs was known.
    """
    candidates: list[Candidate] = []
    began = time.monotonic()
    with interruptible() as interruption:
        for name in NAMES:
            left = budget_seconds - (time.monotonic() - began)
            best_so_far = best_of(candidates)
            if name == "given":  # one evaluation, so that Ctrl-C always finds something
                with interruption.held():
                    outcome = evaluator.evaluate(instance.given[None])[0]
                candidates.append(Candidate(name, instance.given, outcome))
                continue
            if interruption.seen:
                reason = NOT_TRIED
            elif best_so_far is not None and _is_too_long(name, instance, left):
                reason = "not tried: the budget would not have sufficed"
            else:
                limits = _limits(name, instance.problem, left, max_trials)
                found = _run(name, instance, evaluator, limits, seed, best_so_far)
                if name == SINGLE and _is_as_good(candidates[0], found, instance.problem):
                    found = dataclasses.replace(candidates[0], name=name)
                candidates.append(found)
                continue
            candidates.append(Candidate(name, instance.given, Infeasible("error", reason)))
        if interruption.seen and best_of(candidates) is None:
            raise Interrupted
    return candidates


def _is_as_good(given: Candidate, single: Candidate, problem: Problem) -> bool:
    """Whether given is one device, too, and only what was measured of devices makes it slower.

    Then both are timed as one: a third of the time for real runs is for other steps.
    """
    own = set(given.device_of_op.tolist())
    types = {problem.device_types[each] for each in own.union(single.device_of_op.tolist())}
    is_alike = problem.executor is not None and len(own) == len(types) == 1
    return is_alike and given.step_seconds <= single.step_seconds * AS_GOOD


def _is_too_long(name: str, instance: Instance, left_seconds: float) -> bool:
    """Whether a baseline that computes long before its first trial would not end in time."""
    size = len(instance.problem.graph.use_op) * instance.problem.num_devices
    expected = SECONDS_PER_USE_AND_DEVICE.get(name, 0.0) * size
    return expected > PARTS["slow_baseline"].of(max(left_seconds, 0.0))


def _run(
    name: str,
    instance: Instance,
    evaluator: Evaluator,
    limits: Limits,
    seed: int,
    best_so_far: Candidate | None,
) -> Candidate:
    """One baseline within the limits; at least one placement is tried."""
    start = None if best_so_far is None else best_so_far.device_of_op
    stage = Stage(name, lambda best: policy_of(name, instance, seed, start))
    result = search([stage], evaluator, limits)
    trial = result.best or result.least_infeasible
    if trial is not None:
        return Candidate(name, trial.placement.device_of_op, trial.outcome)
    reason = NOT_TRIED if result.interrupted else f"{name} proposed no placement"
    return Candidate(name, instance.given, Infeasible("error", reason))


def _limits(name: str, problem: Problem, seconds: float, max_trials: int | None) -> Limits:
    """Of one baseline; only local search goes on for as long as it may."""
    trials = None
    if name == "local_search" and max_trials is not None:
        trials = max(min(max(max_trials, LEAST_TRIALS), MOST_SIMULATED_OPS // problem.num_ops), 1)
    elif name == "local_search":
        seconds = PARTS["local_search"].of(seconds)
    return Limits(max(seconds, LEAST_SECONDS), trials)


def best_single(instance: Instance, evaluator: Evaluator) -> Candidate:
    """The best device that holds everything by itself."""
    return _run("single", instance, evaluator, Limits(math.inf), 0, None)


def annealed(problem: Problem, starts: IntArray, limits: Limits, seed: int) -> SearchResult:
    """Annealing inside the simulator that begins with placements i4[B, N] alone."""
    policy = annealing_from(problem, seed, starts)
    return search([Stage("annealing", lambda best: policy)], SimulatingEvaluator(problem), limits)


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The fastest feasible one; the earlier of equals; None where none can run."""
    feasible = [c for c in candidates if math.isfinite(c.step_seconds)]
    return min(feasible, key=lambda c: c.step_seconds, default=None)


def as_reported(candidate: Candidate, problem: Problem) -> "Baseline":
    """A candidate as report.json has it."""
    outcome = candidate.outcome
    # Empty where they are not known.
    peaks = dict(zip(problem.device_names, map(int, outcome.peak_bytes), strict=False))
    if isinstance(outcome, Measurement):
        used = len(np.intersect1d(candidate.device_of_op, working_devices(problem)))
        return Baseline(outcome.step_seconds, True, "", peaks, num_devices=used)
    return Baseline(None, False, outcome.message, peaks)


def is_fixed(problem: Problem) -> bool:
    """Whether pins, colocation and kernels leave no op a choice, as --keep_devices may."""
    return bool((problem.allowed().sum(axis=1) <= 1).all())


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A placement that needs no search.

    Attributes:
      step_seconds: predicted; None where it can't run.
      feasible: whether it can.
      reason: why not, else empty.
      peak_bytes: {device: bytes}.
      num_devices: that it works on; pins may spread `single` over several.
    """

    step_seconds: float | None
    feasible: bool
    reason: str
    peak_bytes: Mapping[str, int]
    num_devices: int = dataclasses.field(default=0, kw_only=True, compare=False)


def predicted(problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with new outcomes, but for those that were not tried or may not be."""
    evaluator = SimulatingEvaluator(problem, num_threads=1)
    return [
        dataclasses.replace(each, outcome=evaluator.evaluate(each.device_of_op[None])[0])
        if math.isfinite(each.step_seconds)
        else each
        for each in candidates
    ]

"""The best step found on 1, 2, 4, ... devices: what an answer to "do I need four?" needs.

For each number the placements that are known are carried over, devices that may not be used merged
with others, and annealed for a short time. Where that finds something better than the search for
all devices did, it is written.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.errors import ConstraintError
from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.table import policy_of
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate, annealed, best_of, is_fixed
from tfplace.choosing.memory_limit import chosen_devices, limited_to, num_counted
from tfplace.choosing.ties import extent
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.evaluator import SimulatingEvaluator

# Annealing less is not worth the while; laying out its levels takes a few 1e-5 s per op.
LEAST_TRIALS = 100
LEAST_SECONDS_PER_OP, MOST_SECONDS = 5e-5, 30.0
NONE = Limits(0.0, 0)
ABOUT = 0.05
"""Devices whose work differs by less than this share of the busiest one's count as equally busy."""


@dataclasses.dataclass(frozen=True)
class OnDevices:
    """The best step found with at most so many devices.

    Attributes:
      max_devices: how many; CPUs beside GPUs are not counted.
      step_seconds: predicted; None where nothing was found.
      num_devices: how many of them it uses.
      transfers: between all devices, in a step.
      reason: why nothing was found, else empty.
    """

    max_devices: int
    step_seconds: float | None
    num_devices: int = 0
    transfers: int = 0
    reason: str = ""


def device_counts(problem: Problem) -> list[int]:
    """1, 2, 4, ... and all that work can be spread over; empty where that is one."""
    most = len(working_devices(problem))
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [*powers, most] if most > 1 else []


def reserved(problem: Problem, budget_seconds: float, max_trials: int | None) -> Limits:
    """What of a search's limits `on_fewer_devices` gets for each number: nothing, or enough.

    Args:
      budget_seconds, max_trials: of the whole search; None for no limit.
    """
    num_counts = max(len(device_counts(problem)) - 1, 1)
    share = PARTS["fewer_devices"].share / num_counts  # the part is of all numbers together
    most = MOST_SECONDS if max_trials is None else math.inf  # else the clock would decide, too
    limits = _share(Limits(budget_seconds, max_trials), share, most)
    return limits if _is_enough(limits, problem.num_ops) else NONE


def limits_beside(reserve: Limits, limits: Limits, problem: Problem) -> Limits:
    """What is left of a search's limits where each smaller number of devices gets `reserve`."""
    times, trials = max(len(device_counts(problem)) - 1, 0), limits.max_trials
    if trials is not None and reserve.max_trials is not None:
        trials -= times * reserve.max_trials
    return Limits(limits.budget_seconds - times * reserve.budget_seconds, trials)


def on_fewer_devices(
    problem: Problem, known: Sequence[Candidate], limits: Limits, seed: int
) -> list[Candidate]:
    """The best placement found on 1, 2, 4, ... devices, but not on all of them.

    Args:
      limits: of annealing for each number; with NONE nothing is annealed.
    """
    found = list[Candidate]()
    for count in device_counts(problem)[:-1]:
        try:
            limited = limited_to(problem, chosen_devices(problem, count))
        except ConstraintError:
            continue
        candidate, interrupted = _on(limited, f"found on {count}", [*known, *found], limits, seed)
        if candidate is not None:
            found.append(candidate)
        if interrupted:
            break
    return found


def by_devices(problem: Problem, known: Sequence[Candidate]) -> list[OnDevices]:
    """For 1, 2, 4, ... and all devices the best of what was found."""
    counted = [(num_counted(problem, each.device_of_op), each) for each in known]
    rows = []
    for count in device_counts(problem):
        fitting = [candidate for number, candidate in counted if number <= count]
        best = best_of(fitting)
        if best is None:
            rows.append(OnDevices(count, None, reason=_why(fitting)))
            continue
        number, _, transfers = extent(problem, best.device_of_op)
        rows.append(OnDevices(count, best.step_seconds, number, transfers))
    return rows


def _why(candidates: Sequence[Candidate]) -> str:
    """Why none of these can run: memory explains most."""
    reasons = {
        each.outcome.reason: each.outcome.message
        for each in candidates
        if isinstance(each.outcome, Infeasible)
    }
    return reasons.get("memory") or next(iter(reasons.values()), "pins and kernels need more")


def _on(
    limited: Problem, name: str, known: Sequence[Candidate], limits: Limits, seed: int
) -> tuple[Candidate | None, bool]:
    """The best placement found of a problem with fewer devices; whether a signal came."""
    feasible = [each for each in known if math.isfinite(each.step_seconds)]
    wanted = sorted(feasible, key=lambda each: each.step_seconds)[:2]
    if not wanted:
        return None, False
    starts = np.array([carried_over(limited, each.device_of_op) for each in wanted], np.int32)
    outcomes = SimulatingEvaluator(limited).evaluate(starts)
    tried = [Candidate(name, *each) for each in zip(starts, outcomes, strict=True)]
    best = best_of(tried) or tried[0]
    if limits == NONE or is_fixed(limited):
        return best, False
    result = annealed(limited, starts, limits, seed)
    if result.best is not None:
        tried.append(Candidate(name, result.best.placement.device_of_op, result.best.outcome))
    return best_of(tried) or best, result.interrupted


def carried_over(limited: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: a placement on the devices that are left; each other one's ops join the left device
    that has least to do then, those of the one with most to do first.

    What differs by less than ABOUT of the most counts as equal, and the first of equals is taken:
    so the shards of one host come together on another, and so does what they sum up there.

    Args:
      limited: a problem with fewer devices.
      device_of_op: i4[N].
    """
    left = working_devices(limited)
    seconds = limited.op_seconds.min(axis=1)  # each op has a kernel on some device
    work = np.bincount(device_of_op, weights=seconds, minlength=limited.num_devices)
    usable = np.isfinite(limited.op_seconds).any(axis=0)
    target = np.arange(limited.num_devices)
    unit = ABOUT * float(work.max(initial=0.0)) or 1.0
    for device in sorted(np.flatnonzero(~usable).tolist(), key=lambda d: -np.rint(work[d] / unit)):
        target[device] = min(left.tolist(), key=lambda d: np.rint(work[d] / unit))
        work[target[device]] += work[device]
    return legal(limited, target[device_of_op].astype(np.int32))


# More devices are never worse: a search on all of them begins with what fewer of them reached.
#
# Half and a quarter of the devices are searched first, each for a share of the budget. What is
# found there can run on all devices as it is, so the search goes on from it, and never ends above
# it.

FOUND_FIRST = "found first on"
"""How the names of these placements begin."""


def found_on_fewer(
    instance: Instance, known: Sequence[Candidate], limits: Limits, seed: int
) -> tuple[list[Candidate], int]:
    """The best placements found on a quarter and on half of the devices, and the trials of it.

    Args:
      limits: of the whole search; nothing is searched where a share of them is too little.
    """
    most = len(working_devices(instance.problem))
    found, num_trials = list[Candidate](), 0
    # On four devices and more only: two have nothing but a single one below them.
    for part, name in ((4, "quarter_of_devices"), (2, "half_of_devices")):
        part_limits = _share(limits, PARTS[name].share)
        if most < 2 * part or not _is_enough(part_limits, instance.problem.num_ops):
            continue
        result = _searched(instance, most // part, [*known, *found], part_limits, seed)
        if result is None:
            continue
        num_trials += result.num_trials
        if (best := result.best) is not None:
            name = f"{FOUND_FIRST} {most // part}"
            found.append(Candidate(name, best.placement.device_of_op, best.outcome))
        if result.interrupted:
            break
    return found, num_trials


def _share(limits: Limits, share: float, most_seconds: float = math.inf) -> Limits:
    trials = None if limits.max_trials is None else int(limits.max_trials * share)
    return Limits(min(limits.budget_seconds * share, most_seconds), trials)


def _is_enough(limits: Limits, num_ops: int) -> bool:
    trials = LEAST_TRIALS if limits.max_trials is None else limits.max_trials
    return limits.budget_seconds >= LEAST_SECONDS_PER_OP * num_ops and trials >= LEAST_TRIALS


def _searched(
    instance: Instance, count: int, known: Sequence[Candidate], limits: Limits, seed: int
) -> SearchResult | None:
    """An annealing on so many devices; None where pins and kernels leave it nothing to choose."""
    problem = instance.problem
    try:
        limited = limited_to(problem, chosen_devices(problem, count))
    except ConstraintError:
        return None
    if is_fixed(limited):
        return None
    part = Instance(limited, legal(limited, instance.given))
    best = best_of(known)
    start = None if best is None else carried_over(limited, best.device_of_op)
    policy = policy_of("annealing", part, seed, start)
    return search([Stage("annealing", lambda _: policy)], SimulatingEvaluator(limited), limits)

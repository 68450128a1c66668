"""More devices are never worse: a search on all of them begins with what fewer of them reached.

Half and a quarter of the devices are searched first, each for a share of the budget. What is found
there can run on all devices as it is, so the search goes on from it, and never ends above it.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphs.errors import ConstraintError
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.table import policy_of
from tfplace.choosing.baselines import Candidate, best_of, is_fixed
from tfplace.choosing.by_devices import LEAST_SECONDS_PER_OP, LEAST_TRIALS, carried_over
from tfplace.choosing.device_limit import chosen_devices, limited_to
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.evaluator import SimulatingEvaluator

FOUND_FIRST = "found first on"
"""How the names of these placements begin."""
HALF_SHARE, QUARTER_SHARE = 0.2, 0.1
"""Of the budget. On four devices and more only: two have nothing but a single one below them."""


def found_on_fewer(
    instance: Instance, known: Sequence[Candidate], limits: Limits, seed: int
) -> tuple[list[Candidate], int]:
    """The best placements found on a quarter and on half of the devices, and the trials of it.

    Args:
      instance: what is placed on all devices.
      known: placements that were found.
      limits: of the whole search; nothing is searched where a share of them is too little.
      seed: of annealing.
    """
    most = len(working_devices(instance.problem))
    found, num_trials = list[Candidate](), 0
    for part, share in ((4, QUARTER_SHARE), (2, HALF_SHARE)):
        part_limits = _share(limits, share)
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


def _share(limits: Limits, share: float) -> Limits:
    trials = None if limits.max_trials is None else int(limits.max_trials * share)
    return Limits(limits.budget_seconds * share, trials)


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

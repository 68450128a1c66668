"""Small graphs: their optimum, and what is proven where time was too short for it."""

from __future__ import annotations

from graphs.problem import Problem
from tfplace.bounds.exact import Optimum, is_small, optimum
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.choosing.baselines import Candidate
from tfplace.interruption import interruptible
from tfplace.search.trial import Evaluator

# The optimum is searched for so long at most, and for this share of the budget.
MAX_SECONDS = 20.0
BUDGET_SHARE = 0.5


def solve_small(problem: Problem, best: Candidate | None, budget_seconds: float) -> Optimum | None:
    """The optimum of a small graph, or how far the search for it came; None for others.

    Args:
      problem: of any size.
      best: a placement that fits, to start from, or None.
      budget_seconds: what is left of the whole search's.
    """
    if problem.num_devices == 1 or not is_small(problem):
        return None
    start = None if best is None else best.device_of_op
    seconds = min(MAX_SECONDS, BUDGET_SHARE * budget_seconds)
    with interruptible() as interruption:
        return interruption.unless_seen(lambda: optimum(problem, seconds, start), None)


def as_candidate(solved: Optimum | None, evaluator: Evaluator) -> list[Candidate]:
    """The best placement that the search for the optimum saw, if any."""
    if solved is None or solved.device_of_op is None:
        return []
    outcome = evaluator.evaluate(solved.device_of_op[None])[0]
    name = "optimum" if solved.is_proven else "search for the optimum"
    return [Candidate(name, solved.device_of_op, outcome)]


def proven_bound(problem: Problem, solved: Optimum | None) -> float:
    """Seconds that no placement beats: the optimum where it is known."""
    if solved is not None and solved.is_proven:
        return solved.lower_bound_seconds
    bound = lower_bound_seconds(problem)
    return bound if solved is None else max(bound, solved.lower_bound_seconds)

"""The search of `solve`: a problem of any graph, wherever it came from."""

import dataclasses
import time

from graphs.constraints import require_possible
from graphs.errors import MemoryLimitError
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import legal
from tfplace.algorithms.table import stages_of
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.choosing.baselines import LEAST_SECONDS, Candidate, baseline_candidates, best_of
from tfplace.choosing.choose import Choice, choose
from tfplace.choosing.device_counts import found_on_fewer, limits_beside, on_fewer_devices, reserved
from tfplace.choosing.find_placement import Searched, without_idle_devices
from tfplace.choosing.memory_limit import why_nothing_fits
from tfplace.interruption import interruptible
from tfplace.progress import Progress
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, search
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulated import Simulated, simulated

BOUND_SECONDS = 30.0
"""The lower bound is waited for so long; 100,000 ops on eight devices take a third of it."""
REMEDY = "change pinned_device, colocation_group or op_seconds"


@dataclasses.dataclass(frozen=True)
class SolveOptions:
    """What is asked of a search.

    Attributes:
      algorithm: a name of the table.
      budget_seconds: of baselines and search together.
      max_trials: of the search after the baselines; None for no limit.
      seed: of every random choice.
    """

    algorithm: str = "auto"
    budget_seconds: float = 60.0
    max_trials: int | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Solved:
    """What was found.

    Attributes:
      problem: what was solved.
      searched: baselines and search.
      choice: the placement, and why this one.
      placed: it, simulated.
      lower_bound_seconds: of every placement; None where it took too long.
      interrupted: whether a signal ended the search.
    """

    problem: Problem
    searched: Searched
    choice: Choice
    placed: Simulated
    lower_bound_seconds: float | None
    interrupted: bool


def solve(
    problem: Problem, given: IntArray, options: SolveOptions, progress: Progress | None = None
) -> Solved:
    """Searches a placement; the best so far after the first Ctrl-C.

    Args:
      problem: what is placed.
      given: i4[N] the placement that came with it, which may be one that can't run.
      options: algorithm, limits and seed.
      progress: is told what goes on.

    Raises:
      ConstraintError: pins, colocation and kernels leave an op no device.
      MemoryLimitError: nothing fits.
    """
    progress, graph = progress or Progress(), problem.graph
    require_possible(
        problem.allowed(),
        problem.op_seconds,
        problem.pinned_device,
        graph.colocation_group,
        graph.op_names,
        problem.device_names,
        REMEDY,
    )
    with interruptible() as interruption, interruption.held():
        searched = _search(problem, given, options, progress)
        candidates = [*searched.candidates, *searched.fewer]
        if best_of(candidates) is None:
            raise MemoryLimitError(why_nothing_fits(candidates, problem, is_model=False))
        choice = choose(candidates, problem)
        placed = simulated(problem, choice.candidate.device_of_op)
        progress.say("finding the step time that no placement can beat")
        with progress.working():
            bound = interruption.unless_seen_in_time(
                lambda: lower_bound_seconds(problem), None, BOUND_SECONDS
            )
        return Solved(problem, searched, choice, placed, bound, interruption.seen)


def _search(
    problem: Problem, given: IntArray, options: SolveOptions, progress: Progress
) -> Searched:
    """The baselines, then the algorithm from the best of them, all within one budget."""
    instance = Instance(problem, legal(problem, given))
    simulator = SimulatingEvaluator(problem)
    progress.say(f"trying the baselines on {problem.num_devices} devices")
    simulator.evaluate(instance.given[None])  # compiles, or loads what was compiled before
    began = time.monotonic()
    baselines = baseline_candidates(
        instance, simulator, options.budget_seconds, options.seed, options.max_trials
    )
    baselines[0] = Candidate("given", given, simulator.evaluate(given[None])[0])
    left = options.budget_seconds - (time.monotonic() - began)
    first, num_trials = found_on_fewer(
        instance, baselines, Limits(left, options.max_trials), options.seed
    )
    best = best_of([*baselines, *first])
    start = instance.given if best is None else best.device_of_op
    stages = []
    if problem.num_devices > 1:
        stages = stages_of(options.algorithm, instance, options.seed, start)
    left = max(options.budget_seconds - (time.monotonic() - began), LEAST_SECONDS)
    trials = None if options.max_trials is None else max(options.max_trials - num_trials, 1)
    reserve = reserved(problem, left, trials)
    limits = limits_beside(reserve, Limits(left, trials), problem)
    with progress.working(left):
        result = search(stages, simulator, limits, progress.search)
        candidates = [*baselines, *first]
        if result.best is not None:
            found = result.best
            name = f"found by {options.algorithm}"
            candidates.append(Candidate(name, found.placement.device_of_op, found.outcome))
        if result.interrupted:
            return Searched(baselines, candidates, result)
        fewer = on_fewer_devices(problem, candidates, reserve, options.seed)
    return without_idle_devices(problem, Searched(baselines, candidates, result, fewer))

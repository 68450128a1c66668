"""The search of `solve`: a problem of any graph, wherever it came from."""

import dataclasses

from graphs.constraints import require_possible
from graphs.errors import MemoryLimitError
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.budget import PARTS
from tfplace.choosing.choose import Choice, choose
from tfplace.choosing.find_placement import (
    ProblemAlone,
    Searched,
    find_placement,
    without_idle_devices,
)
from tfplace.choosing.memory_limit import Advice, why_nothing_fits
from tfplace.interruption import interruptible
from tfplace.preparing.options import OptimizeOptions
from tfplace.progress import Progress
from tfplace.simulation.simulated import Simulated, simulated

REMEDY = "change pinned_device, colocation_group or op_seconds"


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
    problem: Problem, given: IntArray, options: OptimizeOptions, progress: Progress | None = None
) -> Solved:
    """Searches a placement; the best so far after the first Ctrl-C.

    Args:
      given: i4[N] the placement that came with it, which may be one that can't run.
      options: algorithm, limits and seed; real runs are none of it.

    Raises:
      ConstraintError: pins, colocation and kernels leave an op no device.
      MemoryLimitError: nothing fits.
    """
    progress = progress or Progress()
    require_possible(problem, REMEDY)
    with interruptible() as interruption, interruption.held():
        searched = find_placement(ProblemAlone(problem, given), options, None, None, progress)
        if searched.best is None:
            raise MemoryLimitError(
                why_nothing_fits(searched.everything, problem, advice=Advice(is_model=False))
            )
        searched = without_idle_devices(problem, searched)
        choice = choose(searched.everything, problem)
        placed = simulated(problem, choice.candidate.device_of_op)
        progress.say("finding the step time that no placement can beat")
        with progress.working():
            bound = interruption.unless_seen_in_time(
                lambda: lower_bound_seconds(problem), None, PARTS["bound_of_problem"].of()
            )
        return Solved(problem, searched, choice, placed, bound, interruption.seen)

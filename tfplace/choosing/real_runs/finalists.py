"""Which of a few good placements is written: the one that real runs find fastest."""

import dataclasses
import math
from collections.abc import Sequence

from graphs.problem import Infeasible, Problem
from tfplace.choosing.baselines import NAMES, Candidate
from tfplace.choosing.budget import FIRST_ROUND
from tfplace.choosing.choose import Choice
from tfplace.choosing.real_runs.plan import distinct
from tfplace.choosing.run_results import Tried
from tfplace.choosing.ties import TIE, extent
from tfplace.measurement.run_measurement import measure_variants
from tfplace.preparing.prepare import PreparedModel


def of_measured_search(
    prepared: PreparedModel,
    candidates: Sequence[Candidate],
    choice: Choice,
    seed: int,
    seconds: float = math.inf,
) -> tuple[Choice, list[Tried]]:
    """The best of a search by real runs, or the chosen one where that runs faster; all timings.

    Such a search knows better than the prediction that `choice` was made by; what it found is
    still compared with given and single afterwards.
    """
    rivals = [c for c in candidates if c.name not in NAMES and math.isfinite(c.step_seconds)]
    if not rivals:
        return choice, []
    if choice.verdict == "placed":
        rivals.append(choice.candidate)
    winner, tried = quickest(prepared, rivals, seed, seconds)
    return Choice(winner, "placed", choice.sentence), tried


def quickest(
    prepared: PreparedModel, rivals: Sequence[Candidate], seed: int, seconds: float = math.inf
) -> tuple[Candidate, list[Tried]]:
    """The finalist with the lowest measured median, and what each one took.

    Of those within TIE of it the one with the fewest devices and transfers; the first where none
    is measured in time. A finalist that has no rival is not measured.
    """
    rivals = distinct(rivals)
    if len(rivals) == 1:
        return rivals[0], []
    variants = {str(i): prepared.placed_run_graph(r.device_of_op) for i, r in enumerate(rivals)}
    config = dataclasses.replace(FIRST_ROUND, seed=seed, all_seconds=seconds)
    results = measure_variants(variants, prepared.training_run(), prepared.cluster, config)
    ran = [results[name] for name in variants]
    medians = [each if isinstance(each, Infeasible) else each.median_seconds for each in ran]
    return judged(prepared.problem, rivals, medians)


def judged(
    problem: Problem, rivals: Sequence[Candidate], results: Sequence[float | Infeasible]
) -> tuple[Candidate, list[Tried]]:
    """Which of some placements has won by its measured step, and why the others have lost.

    Args:
      rivals: at least one.
      results: seconds, or why it could not run, of each.
    """
    measured = {i: result for i, result in enumerate(results) if not isinstance(result, Infeasible)}
    least = min(measured.values(), default=math.inf)
    tied = [index for index, median in measured.items() if median <= least * (1.0 + TIE)]
    winner = min(
        tied, key=lambda i: (*extent(problem, rivals[i].device_of_op), measured[i]), default=0
    )
    tried = []
    for index, (rival, result) in enumerate(zip(rivals, results, strict=True)):
        seconds = measured.get(index)
        if isinstance(result, Infeasible):
            why = f"could not run: {result.message}"
        elif index == winner:
            why = "the fastest of these" if measured[index] == least else "as fast, and needs less"
        elif index in tied:
            why = "as fast, but needs more devices or transfers"
        else:
            why = f"{measured[index] / least:.2f} times as long as the fastest"
        tried.append(Tried(rival.name, rival.step_seconds, seconds, why))
    return rivals[winner], tried

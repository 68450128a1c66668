"""The loop on devices that are present: what it begins with, and which placement it ends with."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice
from tfplace.choosing.compare import Tried
from tfplace.choosing.finalists import judged
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.rounds.corrections import ForwardModel
from tfplace.choosing.rounds.estimate import Corrections
from tfplace.choosing.rounds.first_plans import (
    known_plans,
    named_plans,
    others_to_learn_from,
    plans_on_other_links,
)
from tfplace.choosing.rounds.loop import measured_loop
from tfplace.choosing.rounds.plan import Learned, LoopConfig, Plan, Round
from tfplace.choosing.rounds.real_runs import Annealing, RealRuns, num_fitting
from tfplace.measurement.held_runs import HeldRuns
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.simulation.evaluator import SimulatingEvaluator

ROUNDS_SHARE = 0.8
"""Of the time for real runs; the comparison with given and single has the rest."""
SEARCH_SHARE = 0.04
"""Of the budget, for one search between rounds."""
NEAR = 1.1
"""Where one device ran fastest, what ran at most so many times as long may yet be faster."""
MOST_OTHERS = 2
"""Known placements of a first round that no search has to be waited for."""
CALIBRATED_SPREAD = 0.4
"""How far a calibrated machine's numbers may be off, against an assumed one's."""
REAL = LoopConfig(max_rounds=5, num_drawn=1, max_drawn=2, num_known=1)


@dataclasses.dataclass(frozen=True)
class Contest:
    """What the rounds came to.

    Attributes:
      winner: the placement that ran fastest, predicted by the corrected simulator; where that is
        one device, the fastest of the others if it is near: a comparison decides between them.
      tried: each placement that ran, the fastest first, and those that could not.
      rounds: what was measured, and learned.
      corrections: of the machine.
    """

    winner: Candidate
    tried: Sequence[Tried]
    rounds: Sequence[Round]
    corrections: Corrections


def contest(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    choice: Choice,
    held: HeldRuns,
    seconds: float,
    reserved: float,
    progress: Progress,
) -> Contest | None:
    """Rounds of real runs; None where there was no time for one, or nothing ran.

    Args:
      prepared: the problem; its devices are present.
      options: budget and seed.
      searched: what is known.
      choice: the best by prediction.
      held: the child.
      seconds: the longest that it may take, with what is reserved.
      reserved: what the comparison afterwards takes if steps take as long as predicted.
      progress: is told what goes on.
    """
    began = time.monotonic()
    model = forward_model(prepared)
    runs = RealRuns(prepared, held, options.seed, model, progress)
    annealing = Annealing(SEARCH_SHARE * options.budget_seconds, options.seed, progress)

    def has_time(plans: Sequence[Plan]) -> bool:
        most = min(ROUNDS_SHARE * seconds, seconds - runs.than_predicted * reserved)
        left = began + most - time.monotonic()
        return left >= runs.seconds_of(plans) + annealing.seconds

    def search(problem: Problem, starts: IntArray, number: int) -> IntArray | None:
        """Nothing where there would be no time to measure what is found."""
        found = Plan("to be found", np.empty(0, dtype=np.int32))
        return annealing(problem, starts, number) if has_time([*planned, found]) else None

    planned, known = named_plans(searched, choice), known_plans(prepared, searched)
    if not has_time(planned):
        return None
    num_named = len(planned)
    planned += others_to_learn_from(model, planned, known, MOST_OTHERS)
    progress.say("searching for rivals where links are slower or quicker")
    for rival in plans_on_other_links(model, search, known, choice):
        planned.append(rival)
    while len(planned) > num_named and not has_time(planned):
        planned.pop()  # searching took longer than it should
    first = planned[: num_fitting(prepared.problem)]
    learned = measured_loop(
        model,
        first,
        known,
        runs.measure,
        search,
        dataclasses.replace(REAL, seed=options.seed),
        has_time,
    )
    return _contest(prepared.problem, learned) if learned.seconds else None


def forward_model(prepared: PreparedModel) -> ForwardModel:
    """The simulator of measured steps."""
    num_fetched = sum(":" in fetch for fetch in prepared.flat.fetches)
    is_calibrated = prepared.cluster.transfer_work is not None
    return ForwardModel(
        prepared.problem,
        lambda placement: prepared.cluster.dispatch_seconds(placement, num_fetched),
        CALIBRATED_SPREAD if is_calibrated else 1.0,
        prepared.cluster.taught,
    )


def _contest(problem: Problem, learned: Learned) -> Contest:
    """Of those that ran within a tie of the fastest, the one that needs least, wins."""
    corrections = learned.corrections
    evaluator = SimulatingEvaluator(corrections.problem, num_threads=1)
    ran: list[tuple[Plan, float | Infeasible]] = [*learned.seconds, *learned.failed]
    plans = [plan for plan, _ in ran]
    outcomes = evaluator.evaluate(np.array([plan.device_of_op for plan in plans]))
    rivals = [
        Candidate(plan.name, plan.device_of_op, outcome)
        for plan, outcome in zip(plans, outcomes, strict=True)
    ]
    winner, tried = judged(problem, rivals, [result for _, result in ran])
    if winner.name == "single":
        near = learned.seconds[0][1] * NEAR
        others = [rivals[i] for i, (_, seconds) in enumerate(learned.seconds) if seconds <= near]
        winner = next((each for each in others if each.name != "single"), winner)
    return Contest(winner, tried, learned.rounds, corrections)

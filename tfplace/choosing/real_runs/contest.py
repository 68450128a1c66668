"""The loop on devices that are present: what it begins with, and which placement it ends with."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Problem
from tfplace.budget import PARTS
from tfplace.choosing.baselines import SINGLE, Candidate, Plan
from tfplace.choosing.choose import Choice
from tfplace.choosing.data_parallel import NAME as DATA_PARALLEL
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.finalists import judged
from tfplace.choosing.real_runs.held_runs import Annealing, RealRuns, num_fitting
from tfplace.choosing.real_runs.loop import measured_loop
from tfplace.choosing.real_runs.plan import Learned, LoopConfig, Search, distinct
from tfplace.choosing.run_results import Corrections, Round, Tried
from tfplace.measurement.held_runs import HeldRuns
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.search.instance import Instance
from tfplace.simulation.evaluator import SimulatingEvaluator

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
      seconds: the longest that it may take, with what is reserved.
      reserved: what the comparison afterwards takes if steps take as long as predicted.
    """
    began = time.monotonic()
    model = forward_model(prepared)
    runs = RealRuns(prepared, held, options.seed, model, progress)
    annealing = Annealing(
        PARTS["between_rounds"].of(options.budget_seconds), options.seed, progress
    )

    def has_time(plans: Sequence[Plan]) -> bool:
        most = min(PARTS["rounds"].of(seconds), seconds - runs.than_predicted * reserved)
        left = began + most - time.monotonic()
        return left >= runs.seconds_of(plans) + annealing.seconds

    def search(problem: Problem, starts: IntArray, number: int) -> IntArray | None:
        """Nothing where there would be no time to measure what is found."""
        found = Plan("to be found", np.empty(0, dtype=np.int32))
        return annealing(problem, starts, number) if has_time([*planned, found]) else None

    planned, known = named_plans(searched, choice), known_plans(prepared.instance, searched)
    if not has_time(planned):
        return None
    num_named = len(planned)
    planned += others_to_learn_from(model, planned, known, MOST_OTHERS)
    progress.say("searching for rivals where links are slower or quicker")
    for rival in plans_on_other_links(model, search, known, choice):
        planned.append(rival)
    while len(planned) > num_named and not has_time(planned):
        planned.pop()  # searching took longer than it should
    learned = measured_loop(
        model,
        planned[: num_fitting(prepared.problem)],
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
    return ForwardModel(
        prepared.problem,
        lambda placement: prepared.cluster.dispatch_seconds(placement, num_fetched),
        CALIBRATED_SPREAD if prepared.cluster.transfer_work is not None else 1.0,
        prepared.cluster.taught,
    )


def _contest(problem: Problem, learned: Learned) -> Contest:
    """Of those that ran within a tie of the fastest, the one that needs least, wins."""
    corrections = learned.corrections
    evaluator = SimulatingEvaluator(corrections.problem, num_threads=1)
    ran: list[tuple[Plan, float | Infeasible]] = [*learned.seconds, *learned.failed]
    plans = [plan for plan, _ in ran]
    outcomes = evaluator.evaluate(np.array([plan.device_of_op for plan in plans]))
    both = zip(plans, outcomes, strict=True)
    rivals = [Candidate(plan.name, plan.device_of_op, outcome) for plan, outcome in both]
    winner, tried = judged(problem, rivals, [result for _, result in ran])
    if winner.name == "single":
        near = learned.seconds[0][1] * NEAR
        others = [rivals[i] for i, (_, seconds) in enumerate(learned.seconds) if seconds <= near]
        winner = next((each for each in others if each.name != "single"), winner)
    return Contest(winner, tried, learned.rounds, corrections)


SLOWER_LINKS, QUICKER_LINKS = (4.0, 16.0), (0.25,)
"""Plausible machines before anything is measured: what the simulator doesn't know hits placements
with many transfers hardest; where one device is best by prediction, links may be quicker."""
LEAST_UNLIKE, MOST_SLOWER = 0.05, 2.5
"""The share of ops that lie elsewhere, and how much longer than the best a step may take, of what
is measured to learn from it."""
CLOSE, LEAST_STEP_SECONDS = 1.3, 5e-3
"""One device may be wrong where the best over several is predicted to take at most so many times as
long, and a step so long that more than starting it is seen."""


def is_open(searched: Searched, choice: Choice) -> bool:
    """Whether real runs may choose another placement than the prediction."""
    if choice.verdict == "placed":
        return True
    return choice.verdict == "kept_single" and _rival(searched, choice) is not None


def _rival(searched: Searched, choice: Choice) -> Candidate | None:
    """The best over several devices where one is best by prediction, if it is close."""
    single = choice.candidate
    others = [
        each
        for each in searched.everything
        if len(np.unique(each.device_of_op)) > 1 and math.isfinite(each.step_seconds)
    ]
    best = min(others, key=lambda each: each.step_seconds, default=None)
    if best is None or single.step_seconds < LEAST_STEP_SECONDS:
        return None
    return best if best.step_seconds <= CLOSE * single.step_seconds else None


def named_plans(searched: Searched, choice: Choice) -> list[Plan]:
    """The choice, one device, and data parallelism where the step is split for it.

    A split step is compared with the unsplit one on one device, so that its own needs no time.
    """
    named = [choice.candidate]
    if choice.verdict != "placed" and (rival := _rival(searched, choice)) is not None:
        named.append(rival)
    wanted = (SINGLE, DATA_PARALLEL) if searched.unsplit is None else (DATA_PARALLEL,)
    known = [each for each in searched.candidates if each.name in wanted]
    return [*named, *(each for each in known if math.isfinite(each.step_seconds))]


def others_to_learn_from(
    model: ForwardModel, planned: Sequence[Plan], known: Sequence[Plan], most: int
) -> list[Plan]:
    """Known placements over several devices, the fastest by prediction first, unlike the planned.

    What is nearly a planned one, or takes more than so many times as long, teaches little.
    """
    chosen = list(planned)
    left = [plan for plan in known if len(np.unique(plan.device_of_op)) > 1]
    if not left:
        return []
    seconds = model.seconds(model.as_taken, np.array([plan.device_of_op for plan in left]))
    limit = MOST_SLOWER * float(seconds.min())
    for index in np.argsort(seconds, kind="stable").tolist():
        plan = left[index]
        near = min(float(np.mean(plan.device_of_op != each.device_of_op)) for each in chosen)
        if near >= LEAST_UNLIKE and seconds[index] <= limit and len(chosen) < len(planned) + most:
            chosen.append(plan)
    return chosen[len(planned) :]


def plans_on_other_links(
    model: ForwardModel, search: Search, known: Sequence[Plan], choice: Choice
) -> Iterator[Plan]:
    """What a search finds where links are slower, or where they are quicker."""
    factors = SLOWER_LINKS if choice.verdict == "placed" else QUICKER_LINKS
    starts = np.array([plan.device_of_op for plan in known], dtype=np.int32)
    for number, factor in enumerate(factors, start=1):
        found = search(model.on(model.with_slower_links(factor)), starts, number)
        if found is not None:
            words = f"{factor:g} times slower" if factor > 1.0 else f"{1 / factor:g} times quicker"
            yield Plan(f"best if links were {words}", found)


def known_plans(instance: Instance, searched: Searched) -> list[Plan]:
    """Placements that are predicted to run: of baselines, searches, and one-shot algorithms."""
    plans = list[Plan](c for c in searched.everything if math.isfinite(c.step_seconds))
    evaluator = SimulatingEvaluator(instance.problem)
    for (name, _), placements in instance.one_shots.items():
        outcomes = evaluator.evaluate(placements)
        seconds = [o.step_seconds if isinstance(o, Measurement) else math.inf for o in outcomes]
        if seconds and math.isfinite(min(seconds)):
            plans.append(Plan(name, placements[int(np.argmin(seconds))]))
    return distinct(plans)

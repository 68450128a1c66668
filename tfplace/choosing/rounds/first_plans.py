"""What the rounds of real runs begin with."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from graphs.placement import Measurement
from tfplace.choosing.baselines import SINGLE, Candidate
from tfplace.choosing.choose import Choice
from tfplace.choosing.data_parallel import NAME as DATA_PARALLEL
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.rounds.corrections import ForwardModel
from tfplace.choosing.rounds.plan import Plan, Search, distinct
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.evaluator import SimulatingEvaluator

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
    rival = _rival(searched, choice)
    return choice.verdict == "kept_single" and rival is not None


def _rival(searched: Searched, choice: Choice) -> Candidate | None:
    """The best over several devices where one is best by prediction, if it is close."""
    single = choice.candidate
    others = [
        each
        for each in [*searched.candidates, *searched.fewer]
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
    plans = [Plan(each.name, each.device_of_op) for each in named]
    wanted = (SINGLE, DATA_PARALLEL) if searched.unsplit is None else (DATA_PARALLEL,)
    return plans + [
        Plan(each.name, each.device_of_op)
        for each in searched.candidates
        if each.name in wanted and math.isfinite(each.step_seconds)
    ]


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


def known_plans(prepared: PreparedModel, searched: Searched) -> list[Plan]:
    """Placements that are predicted to run: of baselines, searches, and one-shot algorithms."""
    plans = [
        Plan(each.name, each.device_of_op)
        for each in [*searched.candidates, *searched.fewer]
        if math.isfinite(each.step_seconds)
    ]
    evaluator = SimulatingEvaluator(prepared.problem)
    for (name, _), placements in prepared.instance.one_shots.items():
        outcomes = evaluator.evaluate(placements)
        seconds = [o.step_seconds if isinstance(o, Measurement) else math.inf for o in outcomes]
        if seconds and math.isfinite(min(seconds)):
            plans.append(Plan(name, placements[int(np.argmin(seconds))]))
    return distinct(plans)

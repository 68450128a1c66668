"""Which placement is written: the fastest that runs, and the plain one when nothing beats it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from graphs.errors import MemoryLimitError
from graphs.problem import Problem
from tfplace.choosing.baselines import Candidate, best_of, is_fixed, is_on_one_device
from tfplace.choosing.compare import Comparison
from tfplace.choosing.memory_limit import why_nothing_fits
from tfplace.measurement.timing import FASTER


@dataclasses.dataclass(frozen=True)
class Choice:
    """Attributes: what is written, the report's verdict on it, and one sentence why."""

    candidate: Candidate
    verdict: str
    sentence: str


def choose(candidates: Sequence[Candidate], problem: Problem) -> Choice:
    """Chooses by prediction.

    Args:
      candidates: with the names "given" and "single" among them.
      problem: what they place.

    Raises:
      MemoryLimitError: none of them fits.
    """
    best = best_of(candidates)
    if best is None:
        raise MemoryLimitError(why_nothing_fits(candidates, problem))
    given, single = _named(candidates, "given"), _named(candidates, "single")
    if problem.num_devices == 1:
        return Choice(given, "kept_given", "one device leaves nothing to place")
    if is_fixed(problem) and best.step_seconds == given.step_seconds:
        return Choice(given, "kept_given", "constraints and kernels leave every op one device")
    if best.step_seconds < min(given.step_seconds, single.step_seconds):
        return Choice(best, "placed", _gain_sentence(best, given, single, problem))
    if single.step_seconds <= given.step_seconds:
        return Choice(
            single, "kept_single", "one device is best: no placement over several beats it"
        )
    return Choice(given, "kept_given", "no placement found beats the one that the model came with")


def confirmed(choice: Choice, candidates: Sequence[Candidate], measured: Comparison) -> Choice:
    """The choice after real runs: a placement that is not clearly faster is not kept.

    Args:
      choice: by prediction.
      candidates: as for `choose`.
      measured: real runs of given, single and the choice.
    """
    if choice.verdict != "placed" or not measured.baseline:
        return choice
    low, high = measured.speedup_ci95
    interval = f"{measured.speedup:.2f}x (95 % interval {low:.2f} to {high:.2f})"
    if measured.verdict == FASTER:
        return dataclasses.replace(
            choice, sentence=f"measured {interval} as fast as {_title(measured.baseline)}"
        )
    kept = _named(candidates, measured.baseline)
    return Choice(
        kept,
        f"kept_{measured.baseline}",
        f"the best placement found measured {interval} as fast as {_title(measured.baseline)}: "
        f"{measured.verdict}, so {_title(measured.baseline)} is kept",
    )


def _title(baseline: str) -> str:
    return {"single": "one device", "given": "the given placement"}[baseline]


def _named(candidates: Sequence[Candidate], name: str) -> Candidate:
    return next(candidate for candidate in candidates if candidate.name == name)


def _gain_sentence(best: Candidate, given: Candidate, single: Candidate, problem: Problem) -> str:
    where = " (all on one device)" if is_on_one_device(best.device_of_op, problem) else ""
    for other, title in ((single, "the best single device's"), (given, "the given placement's")):
        if math.isfinite(other.step_seconds):
            ratio = best.step_seconds / other.step_seconds
            return f"predicted to take {ratio:.3f} of {title} step time{where}"
    return f"no single device can hold it; this placement can{where}"

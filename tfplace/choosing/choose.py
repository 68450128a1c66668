"""Which placement is written: the fastest that runs, and the plain one when nothing beats it."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.errors import MemoryLimitError
from graphs.problem import Measurement, Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.one_shot import single_devices
from tfplace.choosing.baselines import Candidate, best_of, is_fixed
from tfplace.choosing.memory_limit import num_counted, why_nothing_fits
from tfplace.choosing.run_results import PLACED, Comparison
from tfplace.choosing.ties import simplest
from tfplace.measurement.timing import FASTER, SLOWER, Timing
from tfplace.simulation.simulated import simulated

PREDICTED = "predicted, not measured"


@dataclasses.dataclass(frozen=True)
class Choice:
    """Attributes: what is written, the report's verdict on it, and one sentence why."""

    candidate: Candidate
    verdict: str
    sentence: str


def choose(
    candidates: Sequence[Candidate], problem: Problem, unsplit: Sequence[Candidate] = ()
) -> Choice:
    """Chooses by prediction.

    Args:
      candidates: with the names "given" and "single" among them.
      unsplit: the baselines of the step as it came, where `problem` is split and both are known:
        it was slower, so what is chosen is compared with them alone.

    Raises:
      MemoryLimitError: none of them fits.
    """
    best = best_of(candidates)
    if best is None:
        raise MemoryLimitError(why_nothing_fits(candidates, problem))
    given, single = _named(candidates, "given"), _named(candidates, "single")
    if problem.num_devices == 1:
        if math.isfinite(given.step_seconds):
            return Choice(given, "kept_given", "one device leaves nothing to place")
        return Choice(single, "kept_single", "one device can hold it only in this order")
    if is_fixed(problem):
        kept = given if best.step_seconds == given.step_seconds else best
        verdict = "kept_given" if kept is given else "placed"
        sentence = f"constraints and kernels leave every op one device{_beside_free(kept, problem)}"
        return Choice(kept, verdict, sentence)
    chosen = simplest(problem, candidates)
    if unsplit:
        given, single = _named(unsplit, "given"), _named(unsplit, "single")
        return Choice(chosen, "placed", _gain_sentence(chosen, given, single, problem))
    if _same(chosen, single) and is_single(problem, single):
        return Choice(single, "kept_single", _single_sentence(best, single))
    if _same(chosen, given):
        return Choice(
            given, "kept_given", "no placement found beats the one that the model came with"
        )
    if _same(chosen, single):
        sentence = "what is not pinned lies on one device: none found over several beats that"
        return Choice(single, "placed", f"{sentence}{_beside_free(single, problem)}")
    return Choice(chosen, "placed", _gain_sentence(chosen, given, single, problem))


def is_single(problem: Problem, candidate: Candidate) -> bool:
    """Whether a placement works on one device; pins spread even the best single one."""
    return num_counted(problem, candidate.device_of_op) <= 1


def _same(one: Candidate, other: Candidate) -> bool:
    return np.array_equal(one.device_of_op, other.device_of_op) and math.isfinite(
        other.step_seconds
    )


def _single_sentence(best: Candidate, single: Candidate) -> str:
    one = "one device"
    if len(np.unique(single.device_of_op)) > 1:
        one += ", but for ops that have to lie elsewhere,"
    if best.step_seconds >= single.step_seconds:
        return f"{one} is best: none found over several beats it"
    ahead = 1.0 - best.step_seconds / single.step_seconds
    return f"{one} is as good as several: the fastest placement found gains {100 * ahead:.1g} %"


def confirmed(
    choice: Choice,
    candidates: Sequence[Candidate],
    measured: Comparison,
    problem: Problem,
    is_timed: bool = False,
) -> Choice:
    """The choice after real runs: a placement that is not clearly faster is not kept.

    Args:
      measured: real runs of given, single and the choice.
      is_timed: whether earlier real runs have chosen.
    """
    if choice.verdict != "placed" and measured.verdict != SLOWER:
        return choice
    if not measured.baseline:
        single = _named(candidates, "single")
        if is_timed or isinstance(measured.timings.get(PLACED), Timing):
            sentence = "the fastest of what was timed, though not beside one device"
            return dataclasses.replace(choice, sentence=sentence)
        if not math.isfinite(single.step_seconds) or not is_single(problem, single):
            return choice
        return Choice(single, "kept_single", "one device is kept: no step could be measured")
    low, high = measured.speedup_ci95
    interval = f"{measured.speedup:.2f}x (95 % interval {low:.2f} to {high:.2f})"
    if measured.verdict == FASTER:
        return dataclasses.replace(
            choice, sentence=f"measured {interval} as fast as {_title(measured.baseline)}"
        )
    kept = _named(candidates, measured.baseline)
    is_kept = kept.name != "single" or is_single(problem, kept)
    verdict = f"kept_{kept.name}" if is_kept else "placed"
    if measured.is_with_itself:
        sentence = f"in real runs of the best few placements {_title(kept.name)} was the fastest"
        return Choice(kept, verdict, sentence if is_kept else choice.sentence)
    found = "the best placement found"
    if choice.verdict != "placed":
        found = f"{_title(choice.candidate.name)}, the best by prediction,"
    sentence = f"{found} measured {interval} as fast as {_title(kept.name)}, which is kept"
    return Choice(kept, verdict, sentence)


def _title(baseline: str) -> str:
    return {"single": "one device", "given": "the given placement"}[baseline]


def _named(candidates: Sequence[Candidate], name: str) -> Candidate:
    return next(candidate for candidate in candidates if candidate.name == name)


def _gain_sentence(chosen: Candidate, given: Candidate, single: Candidate, problem: Problem) -> str:
    is_free = problem.allowed().sum(axis=1) > 1
    on_one = len(np.unique(chosen.device_of_op[is_free])) <= 1
    end = " (all on one device)" if on_one else ""
    of_single = f"the best single device's{_slow_device_text(single, problem)}"
    for other, title in ((single, of_single), (given, "the given placement's")):
        if math.isfinite(other.step_seconds):
            ratio = chosen.step_seconds / other.step_seconds
            free = "" if is_single(problem, single) else _beside_free(chosen, problem)
            return f"{PREDICTED}: {ratio:.3f} of {title} step time{end}{free}"
    if on_one:
        return f"{PREDICTED}: no single device can hold it as it came; this plan fits one"
    return f"{PREDICTED}: no single device can hold it; this placement can"


def _beside_free(kept: Candidate, problem: Problem) -> str:
    """What a placement takes beside one device without pins: with them, even `single` is spread."""
    pinned = problem.pinned_device
    if not (pinned >= 0).any() or not math.isfinite(kept.step_seconds):
        return ""
    free = dataclasses.replace(problem, pinned_device=np.full_like(pinned, -1))
    steps = [simulated(free, each).outcome for each in single_devices(free)]
    seconds = min((step.step_seconds for step in steps if isinstance(step, Measurement)), default=0)
    if not seconds:
        return ""
    return f"; {kept.step_seconds / seconds:.3f} of one device's step time without the pins"


def _slow_device_text(single: Candidate, problem: Problem) -> str:
    """Names a CPU beside GPUs: a share of its step says little of theirs."""
    devices = np.flatnonzero(np.bincount(single.device_of_op))
    if not len(devices) or np.isin(devices, working_devices(problem)).any():
        return ""
    return f" ({', '.join(problem.device_names[device] for device in devices.tolist())})"

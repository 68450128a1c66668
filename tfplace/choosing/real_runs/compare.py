"""Given, single and placed, timed side by side on the devices that are there."""

import dataclasses
from collections.abc import Mapping, Sequence

from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.choosing.baselines import GIVEN, SINGLE, Candidate
from tfplace.choosing.memory_limit import LIMIT
from tfplace.choosing.run_results import PLACED, Comparison
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.timing import (
    NO_DIFFERENCE,
    Timing,
    confidence_of_look,
    drift,
    looks_at,
    num_outliers,
    speedup,
    summarize,
)
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.prepare import PreparedModel

BASELINES = (SINGLE, GIVEN)  # the first of equals is named
MUCH_BACKGROUND = 0.05
MANY_OUTLIERS = 0.1


def compare(
    prepared: PreparedModel,
    placements: Mapping[str, IntArray],
    limits: StepLimits,
    seed: int = 0,
    held: HeldRuns | None = None,
    unsplit: PreparedModel | None = None,
) -> Comparison:
    """Times placements, interleaved.

    Args:
      prepared: the problem; its devices are present.
      placements: {name: i4[N]}; "given", "single" and "placed" where they are to be compared.
        Equal placements are timed once.
      held: a child that has prepared some of them; None: in one of their own.
      unsplit: where `prepared` is split, the step that "given" and "single" place instead of it.
    """
    variants, alias = distinct_runs(prepared, placements, unsplit)
    runs = {name: _placed_step(name, prepared, unsplit).training_run() for name in variants}
    compared = alias.get(PLACED, "")
    results = measure_variants(variants, runs, prepared.cluster, limits, compared, held)
    timed = {name: results[alias[name]] for name in placements}
    same_as = {name: first for name, first in alias.items() if name != first}
    return dataclasses.replace(_comparison(timed, limits, seed), same_as=same_as)


def distinct_runs(
    prepared: PreparedModel,
    placements: Mapping[str, IntArray],
    unsplit: PreparedModel | None = None,
) -> tuple[dict[str, GraphDef], dict[str, str]]:
    """{name: run graph} without repetitions, and {name: the first one with this placement}.

    Args:
      prepared: the problem; where it has an order, all but the given placement get it.
      placements: {name: i4[N]}.
      unsplit: as for `compare`.
    """
    first: dict[tuple[int, bytes, bool], str] = {}
    alias, graphs = {}, {}
    for name, array in placements.items():
        step = _placed_step(name, prepared, unsplit)
        is_apart = name == GIVEN and step.order is not None
        alias[name] = first.setdefault((id(step), array.tobytes(), is_apart), name)
        if alias[name] == name:
            graphs[name] = step.placed_run_graph(array, in_order=name != GIVEN)
    return graphs, alias


def _placed_step(
    name: str, prepared: PreparedModel, unsplit: PreparedModel | None
) -> PreparedModel:
    """The step that a placement of this name places."""
    return prepared if unsplit is None or name not in BASELINES else unsplit


def _comparison(
    timed: Mapping[str, Timings | Infeasible], limits: StepLimits, seed: int
) -> Comparison:
    timings = {name: _timing(result) for name, result in timed.items()}
    ran = {name: result for name, result in timed.items() if isinstance(result, Timings)}
    baselines = [name for name in BASELINES if name in ran]
    through = next((result.through for result in ran.values()), "tf.function")
    background = next((result.background_share for result in ran.values()), None)
    result = Comparison(
        timings,
        "",
        1.0,
        (1.0, 1.0),
        through,
        background_share=background,
        noise=_noise(timings, background),
    )
    if not baselines or PLACED not in ran:
        return result
    best = min(baselines, key=lambda name: ran[name].median_seconds)
    if ran[best] is ran[PLACED]:  # one placement under two names was timed once
        return dataclasses.replace(result, baseline=best, verdict=NO_DIFFERENCE)
    confidence = confidence_of_look(looks_at(limits.min_steps, limits.max_steps))
    before, after = ran[best].step_seconds, ran[PLACED].step_seconds
    gain = speedup(before, after, seed, confidence)
    noise, rounds = [*result.noise], min(len(before), len(after))
    # The speed-up itself may have changed, which interleaving doesn't cancel.
    if change := drift(before[:rounds] / after[:rounds], seed):
        noise.append(
            f"the speed-up changed by {change:+.0%} from the first half of the runs to the second"
        )
    return dataclasses.replace(
        result,
        baseline=best,
        speedup=gain.ratio,
        speedup_ci95=gain.ci95,
        verdict=gain.verdict,
        noise=noise,
    )


def _noise(timings: Mapping[str, Timing | str], background: float | None) -> list[str]:
    """What disturbed the runs, a sentence each."""
    found = []
    if background is not None and background > MUCH_BACKGROUND:
        found.append(f"other processes took {background:.0%} of this machine's CPU time meanwhile")
    for name, timing in timings.items():
        if isinstance(timing, str):
            continue
        if timing.drift:
            found.append(f"{name}: step times changed by {timing.drift:+.0%} from the first half "
                         "of the runs to the second")  # fmt: skip
        if timing.outliers > MANY_OUTLIERS * timing.runs:
            found.append(f"{name}: {timing.outliers} of {timing.runs} runs are outliers")
    return found


def _timing(result: Timings | Infeasible) -> Timing | str:
    if isinstance(result, Infeasible):
        return result.message
    seconds = result.step_seconds
    outliers = num_outliers(seconds)
    return dataclasses.replace(summarize(seconds), outliers=outliers, drift=drift(seconds))


def placements_to_compare(
    candidates: Sequence[Candidate], chosen: Candidate
) -> dict[str, IntArray]:
    """{"given", "single", "placed": i4[N]}, without those that --max_devices forbids."""
    named = {
        each.name: each.device_of_op
        for each in candidates
        if each.name in BASELINES
        and not (isinstance(each.outcome, Infeasible) and each.outcome.reason == LIMIT)
    }
    return {**named, PLACED: chosen.device_of_op}

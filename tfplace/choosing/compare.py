"""Given, single and placed, timed side by side on the devices that are there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.building.build import origin_devices
from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from rewrite.place_graph import known_origins, place_graph
from tfplace.choosing.baselines import Candidate
from tfplace.evaluation.measure import MeasureConfig, Timings, measure_variants
from tfplace.evaluation.timing import speedup, summarize
from tfplace.evaluation.training_run import TrainingRun
from tfplace.prepare import Prepared
from tfplace.report.report import Timing

BASELINES = ("single", "given")  # the first of equals is named


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Measured step times of several placements of one run.

    Attributes:
      timings: {name: Timing, or a sentence why it could not run}.
      baseline: the faster of given and single; empty where neither ran, or placed did not.
      speedup: median(baseline) / median(placed); 1 where there is no baseline.
      speedup_ci95: bootstrap interval.
      through: "tf.function" or "session".
    """

    timings: Mapping[str, Timing | str]
    baseline: str
    speedup: float
    speedup_ci95: tuple[float, float]
    through: str


def placed_run_graph(found: Prepared, device_of_op: IntArray) -> Any:
    """The model's run graph with these devices written into it."""
    wanted = origin_devices(found.flat, found.built, device_of_op, found.problem.device_names)
    known = known_origins(found.source.graph_def, wanted)
    return place_graph(found.source.graph_def, known.device_of_origin).graph_def


def training_run(found: Prepared) -> TrainingRun:
    """What one run of the model is, for the measuring process."""
    return TrainingRun(
        feeds=found.feeds,
        fetches=found.source.fetches,
        initialization=found.source.initialization,
    )


def compare(
    found: Prepared, placements: Mapping[str, IntArray], config: MeasureConfig, seed: int = 0
) -> Comparison:
    """Times placements, interleaved.

    Args:
      found: the problem; its devices are present.
      placements: {name: i4[N]}; "given", "single" and "placed" where they are to be compared.
        Equal placements are timed once.
      config: how long.
      seed: of the bootstrap.
    """
    alias = _first_of_equals(placements)
    variants = {
        name: placed_run_graph(found, placements[name])
        for name in placements
        if alias[name] == name
    }
    results = measure_variants(variants, training_run(found), found.cluster, config)
    timed = {name: results[alias[name]] for name in placements}
    return _comparison(timed, seed)


def _first_of_equals(placements: Mapping[str, IntArray]) -> dict[str, str]:
    first: dict[bytes, str] = {}
    return {name: first.setdefault(array.tobytes(), name) for name, array in placements.items()}


def _comparison(timed: Mapping[str, Timings | Infeasible], seed: int) -> Comparison:
    timings = {name: _timing(result) for name, result in timed.items()}
    ran = {name: result for name, result in timed.items() if isinstance(result, Timings)}
    baselines = [name for name in BASELINES if name in ran]
    through = next((result.through for result in ran.values()), "tf.function")
    if not baselines or "placed" not in ran:
        return Comparison(timings, "", 1.0, (1.0, 1.0), through)
    best = min(baselines, key=lambda name: summarize(ran[name].step_seconds).median_seconds)
    gain = speedup(ran[best].step_seconds, ran["placed"].step_seconds, seed)
    return Comparison(timings, best, gain.ratio, gain.ci95, through)


def _timing(result: Timings | Infeasible) -> Timing | str:
    if isinstance(result, Infeasible):
        return result.message
    summary = summarize(result.step_seconds)
    return Timing(summary.median_seconds, summary.p10, summary.p90, summary.runs)


def placements_to_compare(
    candidates: Sequence[Candidate], chosen: Candidate
) -> dict[str, IntArray]:
    """{"given", "single", "placed": i4[N]} of those that are predicted to run."""
    named = {c.name: c.device_of_op for c in candidates if c.name in BASELINES}
    return {**named, "placed": chosen.device_of_op}

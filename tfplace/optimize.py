"""The whole way: load, price, search, rewrite, emit, verify, time, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tfplace
from graphs.building.build import origin_devices
from graphs.cluster import Cluster
from graphs.errors import VerificationError
from graphs.problem_file import write_problem
from rewrite.emit import EXTRA_DIRECTORY, Emitted, emit
from rewrite.output_dir import atomic_directory
from tfplace.algorithm_table import require_known, stages_of
from tfplace.choosing.baselines import Candidate, as_reported, baseline_candidates, best_of
from tfplace.choosing.choose import Choice, choose, confirmed
from tfplace.choosing.compare import Comparison, compare, placements_to_compare
from tfplace.choosing.finalists import finalists, quickest
from tfplace.emission import devices_used, verified
from tfplace.evaluation.evaluators import evaluator_for
from tfplace.evaluation.measure import MeasureConfig
from tfplace.evaluation.simulating_evaluator import SimulatingEvaluator
from tfplace.inspection import trainable_bytes
from tfplace.options import OptimizeOptions
from tfplace.output_paths import default_output_dir, require_apart, require_free
from tfplace.placers.bound import lower_bound_seconds
from tfplace.predict import best_of_prediction, predict
from tfplace.prepare import Prepared, prepare
from tfplace.report.files import placement_files, report_files
from tfplace.report.report import Measured, Report, Verified
from tfplace.search import Limits, SearchResult, search
from tfplace.training.checkpoint import Checkpoint
from tfplace.training.trained_policy import algorithm_with_policy
from tfplace.watch import Watch


def optimize(options: OptimizeOptions, watch: Watch | None = None) -> Report:
    """Places a model and emits it.

    Args:
      options: model, cluster, limits, output.
      watch: told what goes on.

    Returns:
      The report, which also lies in the emitted SavedModel.

    Raises:
      TfplaceError: bad input, contradictory constraints, or nothing fits the memory.
    """
    watch = watch or Watch()
    require_known(options.algorithm)
    algorithm, trained = algorithm_with_policy(options.algorithm, options.policy)
    options = dataclasses.replace(options, algorithm=algorithm)
    output_dir = options.output_dir or default_output_dir(options.problem.model)
    require_apart(output_dir, options.problem.model)
    require_free(output_dir, options.overwrite)
    watch.stage(f"reading {options.problem.model} and pricing its ops")
    found = prepare(options.problem)
    watch.stage(f"trying the baselines on {found.cluster.name}")
    baselines, candidates, result = _search(found, options, watch, trained)
    choice = choose(candidates, found.problem)
    comparison = None
    try:
        choice, comparison = _measure(found, options, candidates, choice, watch)
    except KeyboardInterrupt:  # what the search found is still written
        result = dataclasses.replace(result, interrupted=True)
    with atomic_directory(output_dir, options.overwrite) as made:
        watch.stage("writing the placed model and loading it again")
        devices = origin_devices(
            found.flat, found.built, choice.candidate.device_of_op, found.problem.device_names
        )
        files = placement_files(found, choice.candidate.device_of_op)
        emitted = emit(found.source, devices, made, files, overwrite=True)
        report = _report(found, options, baselines, result, choice, comparison, emitted)
        _require_same(report.verified)
        report = dataclasses.replace(report, output_dir=output_dir)
        _write(report_files(report), made / EXTRA_DIRECTORY)
        if options.dump_problem is not None:
            write_problem(options.dump_problem, found.problem, choice.candidate.device_of_op)
    return report


def _search(
    found: Prepared, options: OptimizeOptions, watch: Watch, trained: Checkpoint | None
) -> tuple[list[Candidate], list[Candidate], SearchResult]:
    """Baselines; these and the algorithm's best, all predicted by the simulator; the search."""
    simulator = SimulatingEvaluator(found.problem)
    baselines = baseline_candidates(found.task, simulator, options.budget_seconds, options.seed)
    best = best_of(baselines)
    stages = []
    if found.problem.num_devices > 1:
        start = None if best is None else best.device_of_op
        stages = stages_of(options.algorithm, found.task, options.seed, start, trained)
    limits = Limits(options.budget_seconds, options.max_trials)
    with (
        evaluator_for(options.evaluator, found) as evaluator,
        watch.searching(options.budget_seconds),
    ):
        result = search(stages, evaluator, limits, watch.search)
    candidates = list(baselines)
    if result.best is not None:
        placement = result.best.placement.device_of_op
        outcome = simulator.evaluate(placement[None])[0]
        candidates.append(Candidate(f"found by {options.algorithm}", placement, outcome))
    return baselines, candidates, result


def _measure(
    found: Prepared,
    options: OptimizeOptions,
    candidates: list[Candidate],
    choice: Choice,
    watch: Watch,
) -> tuple[Choice, Comparison | None]:
    """Real runs of given, single and placed, where the devices are there."""
    if not found.is_present or found.problem.num_devices == 1 or options.evaluator == "simulate":
        return choice, None
    if choice.verdict == "placed" and options.evaluator == "auto":
        watch.stage(f"timing the best few placements on {found.cluster.name}")
        rivals = finalists(found, choice.candidate, options.budget_seconds, options.seed)
        choice = dataclasses.replace(choice, candidate=quickest(found, rivals, options.seed))
    watch.stage(f"timing given, single and placed on {found.cluster.name}")
    placements = placements_to_compare(candidates, choice.candidate)
    comparison = compare(found, placements, MeasureConfig(seed=options.seed), options.seed)
    return confirmed(choice, candidates, comparison), comparison


def _report(
    found: Prepared,
    options: OptimizeOptions,
    baselines: list[Candidate],
    result: SearchResult,
    choice: Choice,
    comparison: Comparison | None,
    emitted: Emitted,
) -> Report:
    prediction = predict(found.problem, choice.candidate.device_of_op)
    measured = None
    if comparison is not None:
        used = devices_used(found, emitted)
        measured = Measured(**vars(comparison), devices_used=used)
    return Report(
        tfplace_version=tfplace.__version__,
        seed=options.seed,
        algorithm=options.algorithm,
        evaluator=options.evaluator,
        model=_model_facts(found),
        cluster=_cluster_facts(found.cluster),
        costs={
            "source": found.costs.source,
            "covered_ops": float(found.costs.covered.mean()),
            "notes": list(found.costs.notes),
        },
        baselines={c.name: as_reported(c, found.problem) for c in baselines},
        best=best_of_prediction(prediction),
        lower_bound_seconds=lower_bound_seconds(found.problem),
        search=_search_facts(result),
        measured=measured,
        verified=verified(found, Path(emitted.path), choice.candidate.device_of_op),
        verdict=choice.verdict,
        verdict_sentence=choice.sentence,
        command=options.command,
    )


def _require_same(verified: Verified) -> None:
    """A placed model that computes something else is worse than none: nothing is left of it."""
    if verified.differing:
        raise VerificationError(
            "comparing the emitted model with the model as it came: found "
            f"{len(verified.differing)} differences, the first: {verified.differing[0]}; wanted "
            "equal values; nothing was written; please report it with the model"
        )


def _model_facts(found: Prepared) -> Mapping[str, Any]:
    source = found.source
    return {
        "path": source.path,
        "kind": source.kind,
        "mode": source.mode,
        "step_origin": source.step_origin,
        "num_ops": found.problem.num_ops,
        "num_groups": found.num_groups,
        "trainable_bytes": trainable_bytes(source),
        "guessed": list(source.guessed),
        "units": [f"{name}: {why}" for name, why in found.flat.unit_reason.items()],
    }


def _cluster_facts(cluster: Cluster) -> Mapping[str, Any]:
    devices = [
        {"name": d.name, "type": d.type, "memory_bytes": d.memory_bytes} for d in cluster.devices
    ]
    return {"name": cluster.name, "communication": cluster.communication, "devices": devices}


def _search_facts(result: SearchResult) -> Mapping[str, Any]:
    return {
        "num_trials": result.num_trials,
        "num_infeasible": result.num_infeasible,
        "seconds": result.seconds,
        "trials_per_second": result.num_trials / result.seconds if result.seconds else 0.0,
        "best_trial": None if result.best is None else result.best.index,
        "best_stage": result.best_stage,
        "history": result.history,
        "interrupted": result.interrupted,
    }


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)

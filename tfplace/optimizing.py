"""The whole way: load, price, search, rewrite, emit, verify, time, report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from graphs.building.build import origin_devices
from graphs.devices_asked import kept_beside_the_run
from graphs.errors import VerificationError
from graphs.host.whole_file import write_whole
from graphs.problem_file import write_problem
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.emit_forms import tags_of, write_forms
from rewrite.output_dir import atomic_directory
from rewrite.verify import Verified
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.learned.training.trained_policy import algorithm_with_policy
from tfplace.algorithms.table import require_known, stages_of
from tfplace.bounds.exact import Optimum
from tfplace.choosing.baselines import (
    LEAST_SECONDS,
    Candidate,
    baseline_candidates,
    best_of,
)
from tfplace.choosing.choose import Choice, choose, confirmed
from tfplace.choosing.compare import Comparison, compare, placements_to_compare
from tfplace.choosing.evaluators import evaluator_for
from tfplace.choosing.finalists import (
    SEARCH_SHARE,
    SLOWER_LINKS,
    finalists,
    has_finalists,
    of_measured_search,
    quickest,
)
from tfplace.choosing.kept_search import priced_as_kept, search_folder
from tfplace.choosing.proof import NOT_VERIFIED, devices_used, verified
from tfplace.choosing.small_graph import as_candidate, proven_bound, solve_small
from tfplace.interruption import Interruption, interruptible
from tfplace.measurement.step_limits import StepLimits
from tfplace.output_paths import (
    default_output_dir,
    require_apart,
    require_file,
    require_free,
    require_outside,
    writable,
)
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.progress import Progress
from tfplace.report.explaining.explained import explain
from tfplace.report.files import placement_files, report_files
from tfplace.report.of_run import Proof, Searched, report_of
from tfplace.report.report import Report
from tfplace.report.tensorboard.search_log import SearchLog, hparams_of, run_folder
from tfplace.search.kept.folder import SearchFolder
from tfplace.search.search import Limits, SearchResult, search
from tfplace.simulation.evaluator import SimulatingEvaluator


def optimize(options: OptimizeOptions, progress: Progress | None = None) -> Report:
    """Places a model and emits it.

    Args:
      options: model, cluster, limits, output.
      progress: told what goes on.

    Returns:
      The report, which also lies in the emitted SavedModel.

    Raises:
      TfplaceError: bad input, contradictory constraints, or nothing fits the memory.
      KeyboardInterrupt: Ctrl-C or SIGTERM before a placement was known, or for the second time;
        nothing is left.
    """
    progress = progress or Progress()
    require_known(options.algorithm)
    algorithm, trained = algorithm_with_policy(options.algorithm, options.policy)
    output_dir = options.output_dir or default_output_dir(options.problem.model)
    options = dataclasses.replace(options, algorithm=algorithm, output_dir=output_dir)
    require_apart(output_dir, options.problem.model)
    require_free(output_dir, options.overwrite)
    require_file(options.dump_problem, "--dump_problem", output_dir)
    require_outside(options.checkpoint_dir, "--checkpoint_dir", output_dir)
    run_log = None if options.logdir is None else run_folder(options, time.time())
    with writable(output_dir, options.dump_problem, run_log), interruptible() as interruption:
        log = None if run_log is None else SearchLog(run_log, progress, hparams_of(options))
        progress = log or progress
        progress.say(f"reading {options.problem.model} and pricing its ops")
        found = prepare(options.problem)
        with interruption.held():  # from here on the first Ctrl-C ends with a written model
            with search_folder(found, options, progress) as folder:
                found = found if folder is None else priced_as_kept(found, folder)
                progress.say(f"trying the baselines on {found.cluster.name}")
                simulator = SimulatingEvaluator(found.problem)
                simulator.evaluate(found.given[None])  # compiles, or loads what was compiled before
                baselines, candidates, result, solved = _search(
                    found, simulator, options, progress, SearchStart(trained, folder)
                )
            choice = choose(candidates, found.problem)
            choice, timings = interruption.unless_seen(
                lambda: _measure(found, options, candidates, choice, progress), Timed(choice, None)
            )
            searched = Searched(baselines, result, choice, timings, solved)
            report = _write_model(found, options, searched, interruption, progress)
            if log is not None:
                log.finish(found, choice.candidate.device_of_op, report)
            return report


class SearchStart(NamedTuple):
    """Attributes: what a search goes on from: a trained policy, or what its folder holds; None."""

    trained: Checkpoint | None
    folder: SearchFolder | None


class Timed(NamedTuple):
    """Attributes: what is written after real runs, and these, None where there were none."""

    choice: Choice
    timings: Comparison | None


def _search(
    prepared: PreparedModel,
    simulator: SimulatingEvaluator,
    options: OptimizeOptions,
    progress: Progress,
    origin: SearchStart,
) -> tuple[list[Candidate], list[Candidate], SearchResult, Optimum | None]:
    """Baselines; these and the algorithm's best, all predicted by the simulator; the search.

    Both share the budget, with the search for finalists where that follows.
    """
    began = time.monotonic()
    baselines = baseline_candidates(
        prepared.instance, simulator, options.budget_seconds, options.seed
    )
    best = best_of(baselines)
    left = max(options.budget_seconds - (time.monotonic() - began), LEAST_SECONDS)
    solved = solve_small(prepared.problem, best, left)
    known = [*baselines, *as_candidate(solved, simulator)]
    is_solved = options.algorithm == "auto" and solved is not None and solved.is_proven
    stages = []
    if prepared.problem.num_devices > 1 and not is_solved:
        best = best_of(known)
        start = None if best is None else best.device_of_op
        if origin.folder is not None:
            start = origin.folder.start(start)
        stages = stages_of(
            options.algorithm,
            prepared.instance,
            options.seed,
            start,
            origin.trained,
            is_simulated=options.evaluator != "measure",
        )
    left = max(options.budget_seconds - (time.monotonic() - began), LEAST_SECONDS)
    if has_finalists(prepared, options):
        left *= 1.0 - len(SLOWER_LINKS) * SEARCH_SHARE
    with evaluator_for(options.evaluator, prepared) as evaluator, progress.working(left):
        limits, folder = Limits(left, options.max_trials), origin.folder
        note = None if folder is None else folder.note_trial
        result = search(stages, evaluator, limits, progress.search, note, folder)
    candidates = known
    if result.best is not None:
        placement = result.best.placement.device_of_op
        outcome = simulator.evaluate(placement[None])[0]
        candidates.append(Candidate(f"found by {options.algorithm}", placement, outcome))
    return baselines, candidates, result, solved


def _measure(
    prepared: PreparedModel,
    options: OptimizeOptions,
    candidates: list[Candidate],
    choice: Choice,
    progress: Progress,
) -> Timed:
    """Real runs of given, single and placed, where the devices are there."""
    if (
        not prepared.is_present
        or prepared.problem.num_devices == 1
        or options.evaluator == "simulate"
    ):
        return Timed(choice, None)
    if choice.verdict == "placed" and has_finalists(prepared, options):
        progress.say(f"timing the best few placements on {prepared.cluster.name}")
        rivals = finalists(prepared, choice.candidate, options.budget_seconds, options.seed)
        choice = dataclasses.replace(choice, candidate=quickest(prepared, rivals, options.seed))
    if options.evaluator == "measure":
        choice = of_measured_search(prepared, candidates, choice, options.seed)
    progress.say(f"timing given, single and placed on {prepared.cluster.name}")
    placements = placements_to_compare(candidates, choice.candidate)
    timings = compare(prepared, placements, StepLimits(seed=options.seed), options.seed)
    return Timed(confirmed(choice, candidates, timings), timings)


def _write_model(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    interruption: Interruption,
    progress: Progress,
) -> Report:
    """Rewrites, emits, loads again and compares, reports; all of it is there at the end, or none.

    After Ctrl-C the comparison is left out, and so is what else takes long.
    """
    assert options.output_dir is not None
    placement = searched.choice.candidate.device_of_op
    with atomic_directory(options.output_dir, options.overwrite) as made:
        progress.say("writing the placed model and loading it again")
        names = prepared.problem.device_names
        devices = origin_devices(prepared.flat, prepared.built, placement, names)
        if options.problem.keep_devices:
            beside = kept_beside_the_run(prepared.source.graph_def, prepared.flat, names)
            devices = {**devices, **beside}
        files = placement_files(prepared, placement)
        emit(prepared.source, devices, made, files)
        comparison = interruption.unless_seen(
            lambda: verified(prepared, made, placement), NOT_VERIFIED
        )
        _require_same(comparison)
        bound = interruption.unless_seen(
            lambda: proven_bound(prepared.problem, searched.optimum), None
        )
        used = None
        if searched.timings is not None:
            used = interruption.unless_seen(lambda: devices_used(prepared, made), None)
        proof = Proof(comparison, bound, used or {}, interruption.seen)
        explained = explain(prepared.problem, placement)
        report = report_of(prepared, options, searched, proof, explained)
        _write(report_files(report, explained), made / EXTRA_DIRECTORY)
        write_forms(made, tags_of(prepared.source), options.emit)
        if options.dump_problem is not None:
            write_whole(
                options.dump_problem, lambda file: write_problem(file, prepared.problem, placement)
            )
    return report


def _require_same(verified: Verified) -> None:
    """A placed model that computes something else is worse than none: nothing is left of it."""
    if verified.differing:
        raise VerificationError(
            "comparing the emitted model with the model as it came: found "
            f"{len(verified.differing)} differences, the first: {verified.differing[0]}; wanted "
            "equal values; nothing was written; please report it with the model"
        )


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)

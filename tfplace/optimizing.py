"""The whole way of `tfplace optimize`: from a model to a placed SavedModel and its report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator

from graphs.host.whole_file import write_whole
from graphs.problem_file import write_problem
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.emit_forms import tags_of, write_forms
from rewrite.output_dir import atomic_directory
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.learned.training.trained_policy import algorithm_with_policy
from tfplace.algorithms.table import require_known
from tfplace.choosing.choose import choose
from tfplace.choosing.data_parallel import data_parallel_baseline
from tfplace.choosing.find_placement import find_placement
from tfplace.choosing.kept_search import kept_search
from tfplace.choosing.proof import Emitted, prove
from tfplace.choosing.time_choice import time_choice
from tfplace.compilation.ahead import CompilingAhead
from tfplace.interruption import Interruption, interruptible
from tfplace.output_paths import writable, write_files
from tfplace.preparing.options import OptimizeOptions, require_outputs
from tfplace.preparing.prepare import prepare
from tfplace.progress import Phases, Progress
from tfplace.report.explaining.explained import explain
from tfplace.report.files import placement_files, report_files
from tfplace.report.of_run import FinishedRun, report_of
from tfplace.report.report import Report
from tfplace.report.tensorboard.search_log import SearchLog, hparams_of, run_folder
from tfplace.simulation.simulated import simulated


def optimize(
    options: OptimizeOptions,
    progress: Progress | None = None,
    phases: Phases | None = None,
    compiling: CompilingAhead | None = None,
) -> Report:
    """Places a model and emits it.

    Args:
      options: model, cluster, limits, output.
      progress: is told what goes on.
      phases: knows since when the command runs.
      compiling: what was begun before; the search waits for it.

    Returns:
      The report, which also lies in the emitted SavedModel.

    Raises:
      TfplaceError: bad input, contradictory constraints, or nothing fits the memory.
      KeyboardInterrupt: Ctrl-C or SIGTERM before a placement was known, or for the second time;
        nothing is left.
    """
    options, trained = _checked(options)
    phases, compiling = phases or Phases(), compiling or CompilingAhead()
    with _outputs(options, progress or Progress()) as (progress, log, interruption):
        progress.say(f"reading {options.problem.model} and pricing its ops")
        phases.begin("read")
        pricing = functools.partial(_pricing_begins, phases, compiling, progress)
        prepared = prepare(options.problem, before_pricing=pricing)
        for sentence in prepared.matched:
            progress.say(sentence)
        compiling.wait(phases, progress)
        phases.begin("search")
        with interruption.held():  # from here on the first Ctrl-C ends with a written model
            with kept_search(prepared, options, progress) as (prepared, folder):
                searched = find_placement(prepared, options, trained, folder, progress)
            choice = choose(searched.candidates, prepared.problem)
            phases.begin("measure")
            choice, timings = time_choice(prepared, options, searched, choice, progress)
            phases.begin("write")
            progress.say("writing the placed model and loading it again")
            placed = simulated(prepared.problem, choice.candidate.device_of_op)
            with atomic_directory(options.output_dir or "", options.overwrite) as made:
                devices = prepared.devices_to_write(
                    placed.device_of_op, options.problem.keep_devices
                )
                files = placement_files(prepared, placed)
                emit(prepared.source, devices, made, files)
                phases.begin("prove")
                emitted = Emitted(placed.device_of_op, made, timings is not None)
                proof = prove(prepared, emitted, options.verify, options.budget_seconds)
                phases.begin("report")
                explained = explain(placed)
                split_evenly = interruption.unless_seen(
                    functools.partial(data_parallel_baseline, prepared, options.problem), None
                )
                run = FinishedRun(searched, choice, timings, proof, split_evenly, phases.seconds())
                report = report_of(prepared, options, run, explained)
                write_files(made / EXTRA_DIRECTORY, report_files(report, explained))
                write_forms(made, tags_of(prepared.source), options.emit)
                if options.dump_problem is not None:
                    write_whole(
                        options.dump_problem,
                        lambda file: write_problem(file, placed.problem, placed.device_of_op),
                    )
            if log is not None:
                log.finish(prepared, placed.device_of_op, report)
            return report


def _pricing_begins(
    phases: Phases, compiling: CompilingAhead, progress: Progress, is_timed: bool
) -> None:
    """Real runs that time ops wait until nothing else runs on this machine."""
    if is_timed:
        compiling.wait(phases, progress)
    phases.begin("price")


def _checked(options: OptimizeOptions) -> tuple[OptimizeOptions, Checkpoint | None]:
    """The options with algorithm and output folder filled in, and what --policy names.

    Raises:
      UsageError, CheckpointError, OutputError: an option is no good; nothing was done yet.
    """
    require_known(options.algorithm)
    algorithm, trained = algorithm_with_policy(options.algorithm, options.policy)
    output_dir = require_outputs(options)
    return dataclasses.replace(options, algorithm=algorithm, output_dir=output_dir), trained


@contextlib.contextmanager
def _outputs(
    options: OptimizeOptions, progress: Progress
) -> Iterator[tuple[Progress, SearchLog | None, Interruption]]:
    """Makes sure that all outputs can be written; opens --logdir's log, which sees all progress."""
    folder = None if options.logdir is None else run_folder(options, time.time())
    with (
        writable(options.output_dir, options.dump_problem, folder),
        interruptible() as interruption,
    ):
        log = None if folder is None else SearchLog(folder, progress, hparams_of(options))
        yield log or progress, log, interruption

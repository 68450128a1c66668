"""The whole way of `tfplace optimize`: from a model to a placed SavedModel and its report."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphs.clusters.discovery import find_cluster
from graphs.effects import left_out, left_out_sentence
from graphs.source_model import SourceModel
from rewrite.model_builder import BuiltModel, ModelBuilder
from rewrite.output_dir import atomic_directory, scratch_beside
from tfplace.algorithms.learned.training.checkpoint import Checkpoint, algorithm_with_policy
from tfplace.algorithms.table import require_known
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.budget import has_finalists, search_beside
from tfplace.choosing.data_parallel import DataParallel, data_parallel_baseline, not_tried
from tfplace.choosing.find_placement import find_placement, without_idle_devices
from tfplace.choosing.kept_search import kept_search
from tfplace.choosing.memory.within_memory import nothing_fits, within_memory
from tfplace.choosing.memory_limit import at_most
from tfplace.choosing.outcomes import Decided, Found
from tfplace.choosing.real_runs.measured_choice import comparison_seconds
from tfplace.choosing.real_runs.shard_count_contest import run_tag, runs_ahead, time_beside_others
from tfplace.choosing.scheduling.model_order import (
    ModelOrder,
    simulated_in_order,
    wanted_order,
    with_order,
)
from tfplace.choosing.scheduling.search_in_order import budget_beside_order, search_in_order
from tfplace.choosing.shards.in_order import in_order
from tfplace.choosing.shards.shard_search import ShardSearch
from tfplace.compilation.ahead import CompilingAhead
from tfplace.interruption import Interruption, interruptible
from tfplace.measurement.held_runs import HeldRuns
from tfplace.measurement.presence import require_present, unreached
from tfplace.output_paths import writable
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.on_known_machine import keep_what_was_taught, on_known_machine
from tfplace.preparing.options import AUTO, OptimizeOptions, require_outputs
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.preparing.written_devices import loading_needs
from tfplace.progress import Phases, Progress
from tfplace.proving.proof import Emitted, prove
from tfplace.proving.split_proof import BegunProof
from tfplace.report.files import write_placed, write_report
from tfplace.report.of_run import FinishedRun
from tfplace.report.report import Report
from tfplace.report.tensorboard.search_log import SearchLog, hparams_of, run_folder

REPORTING_SECONDS, STARTING_SECONDS = PARTS["reporting"].of(), PARTS["starting"].of()


def optimize(
    options: OptimizeOptions,
    progress: Progress | None = None,
    phases: Phases | None = None,
    compiling: CompilingAhead | None = None,
    builder: ModelBuilder | None = None,
) -> Report:
    """Places a model and emits it.

    Args:
      options: model, cluster, limits, output.
      progress: is told what goes on.
      phases: knows since when the command runs.
      compiling: what was begun before; the search waits for it.
      builder: makes a SavedModel of a graph; what it starts ends with this.

    Returns:
      The report, which also lies in the emitted SavedModel.

    Raises:
      TfplaceError: bad input, contradictory constraints, or nothing fits the memory.
      KeyboardInterrupt: Ctrl-C or SIGTERM before a placement was known, or for the second time;
        nothing is left.
    """
    require_known(options.algorithm)
    algorithm, trained = algorithm_with_policy(options.algorithm, options.policy)
    output_dir = require_outputs(options)
    if options.evaluator == "measure":
        remedy = "search with --evaluator=simulate, or name a --cluster that is here"
        require_present(find_cluster(options.problem.cluster), "measuring on", remedy)
    options = dataclasses.replace(options, algorithm=algorithm, output_dir=output_dir)
    phases, compiling = phases or Phases(), compiling or CompilingAhead()
    with (
        _outputs(options, progress or Progress()) as (progress, log, interruption),
        scratch_beside(options.output_dir or "") as scratch,
        builder or ModelBuilder(options.problem.model) as builder,
    ):
        asked = options.problem
        measures = options.evaluator != "simulate"
        if measures and (failure := unreached(find_cluster(asked.cluster))):
            progress.say(f"no step can be measured: {failure}")
        options = with_known_machine(options, progress, phases, compiling, scratch)
        prepared = _read(options, progress, phases, compiling, builder, scratch)
        beside = 40.0 if prepared.problem.num_ops <= 15_000 else 120.0  # the contract, section 11
        end = options.budget_seconds + (beside - STARTING_SECONDS)
        compiling.wait(phases, progress)
        if options.evaluator != "measure" and options.problem.num_shards != AUTO:
            builder.begin(prepared.source, scratch)
        run = _Run(options, progress, phases, builder, scratch, end)
        with interruption.held():  # from here on the first Ctrl-C ends with a written model
            writing = PARTS["writing"].of(prepared.problem.num_ops)
            with runs_ahead(prepared, options, end - phases.total() - writing) as held:
                found, others = run.search(prepared, trained, held)
                decided, built = run.decide(found, others, held)
            if decided.corrections is not None and options.checkpoint_dir is None:
                keep_what_was_taught(asked, options.problem, scratch, decided.corrections.values())
            with atomic_directory(options.output_dir or "", options.overwrite) as made:
                report = run.write(decided, built, made, interruption)
            if log is not None:
                log.finish(decided.prepared, decided.choice.candidate.device_of_op, report)
            return report


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run, from the search on."""

    options: OptimizeOptions  # all of them
    progress: Progress  # is told what goes on
    phases: Phases  # knows since when the command runs
    builder: ModelBuilder  # makes a SavedModel of a graph in `scratch`
    scratch: Path  # a folder of this run's
    end: float  # by when all should be over, in seconds since the command began

    def search(
        self, prepared: PreparedModel, trained: Checkpoint | None, held: HeldRuns | None
    ) -> tuple[Found, list[Found]]:
        """What is best by prediction, and what was found for other numbers of shards."""

        def timed_later(prepared: PreparedModel, candidate: Candidate) -> None:
            if held is not None:
                graph = functools.partial(prepared.placed_run_graph, candidate.device_of_op)
                tag, run = run_tag(prepared.source, candidate), prepared.training_run()
                held.begin(tag, graph, run, options.seed)

        options, progress = self.options, self.progress
        self.phases.begin("search")
        with kept_search(prepared, options, progress) as (prepared, folder):
            prepared = at_most(prepared, options.max_devices)
            order = wanted_order(options.problem, prepared.is_present)
            known_after = self.phases.seconds()["measure"]  # so far only of the machine
            limited = search_beside(options, known_after, *self._beside_comparison(prepared, held))
            others: list[Found] = []
            if options.problem.num_shards == AUTO:
                shards = ShardSearch(prepared, limited, trained, progress, timed_later)
                prepared, searched = shards.run(
                    lambda decided: self.builder.begin(decided.source, self.scratch)
                )
                prepared = with_order(prepared, order)
                others = shards.others()
            else:
                limited = budget_beside_order(prepared, limited)
                searched = find_placement(prepared, limited, trained, folder, progress)
            with progress.working():
                searched = without_idle_devices(prepared.problem, searched)
            was_tried = options.problem.num_shards == AUTO and searched.best is None
            found = Found(prepared, searched)
            planned = None if was_tried else within_memory(found, options, progress)
            if planned is not None:
                prepared, searched = planned.prepared, planned.searched
        left = options.budget_seconds - self.phases.seconds()["search"]
        if isinstance(prepared.order, ModelOrder) and options.max_trials is None:
            prepared.order.end_after(max(left, PARTS["orders"].of(options.budget_seconds)))
        searched = in_order(prepared, searched)
        left = options.budget_seconds - self.phases.seconds()["search"]
        searched = search_in_order(prepared, options, searched, progress, left)
        if searched.best is None:
            raise nothing_fits(Found(prepared, searched), options)
        return Found(prepared, searched), others

    def decide(
        self, found: Found, others: Sequence[Found], held: HeldRuns | None
    ) -> tuple[Decided, BuiltModel | None]:
        """What is written after real runs, where there are any, and its graph as a SavedModel."""
        self.phases.begin("write")
        built = self._built(found.prepared.source)
        self.phases.begin("measure")
        num_ops = found.prepared.problem.num_ops
        decided = time_beside_others(
            found,
            others,
            self.options,
            self.progress,
            self._left(PARTS["writing"].of(num_ops)),
            PARTS["proving_split"].of(num_ops),
            held,
        )
        self.phases.begin("write")
        if decided.prepared.source is not found.prepared.source:
            built = self._built(decided.prepared.source)
        return decided, built

    def write(
        self, decided: Decided, built: BuiltModel | None, made: Path, interruption: Interruption
    ) -> Report:
        """Writes the placed model, proves it, and adds its report."""
        prepared, options = decided.prepared, self.options
        chosen = decided.choice.candidate.device_of_op
        placed = simulated_in_order(prepared, chosen)
        self.progress.say("writing the placed model")
        with BegunProof(prepared, interruption) as begun:
            with self.progress.working():
                devices = write_placed(prepared, options, chosen, placed, made, built)
            self.phases.begin("prove")
            order, left = prepared.order_edges(chosen), self._left(REPORTING_SECONDS)
            emitted = Emitted(chosen, made, decided.timings is not None, built, order)
            verify, budget = options.verify, options.budget_seconds
            proof = prove(prepared, emitted, begun, verify, budget, self.progress, left)
        self.phases.begin("report")
        run = FinishedRun(
            decided,
            proof,
            self._split_evenly(decided, interruption),
            self.phases.seconds(),
            loading_needs(prepared.cluster, devices.values()),
        )
        return write_report(options, run, placed, made)

    def _split_evenly(self, decided: Decided, interruption: Interruption) -> DataParallel | None:
        """Data parallelism of the same step, if there is time to split it for that."""
        prepared, known = decided.prepared, decided.searched.data_parallel
        if known is not None:
            return known.reported()
        num_shards = prepared.split.num_shards if prepared.split else 1
        splitting = prepared.reading_seconds * prepared.problem.num_devices / num_shards
        return interruption.unless_seen_in_time(
            functools.partial(
                data_parallel_baseline,
                decided.prepared,
                self.options.problem,
                self._left(REPORTING_SECONDS) - splitting,
                decided.corrected,
            ),
            not_tried(decided.prepared),
            max(self._left(REPORTING_SECONDS), 0.0),
        )

    def _built(self, source: SourceModel) -> BuiltModel | None:
        """What a graph was made, before its placement is written; waits as long as it takes."""
        self.builder.begin(source, self.scratch)
        if self.builder.is_building:
            self.progress.say("making a SavedModel of the graph, its variables with values")
        with self.progress.working():
            return self.builder.built()

    def _beside_comparison(
        self, prepared: PreparedModel, held: HeldRuns | None
    ) -> tuple[float, float]:
        """Seconds until real runs have to begin, so that one device can be compared with what is
        a quarter quicker; and where few steps of each have to do. Infinite where there are none.
        """
        if not has_finalists(prepared, self.options):
            return math.inf, math.inf
        alone = float(np.nanmin(prepared.problem.op_seconds.sum(axis=0)))
        num_new = None if held is None else 1  # one device is prepared ahead
        steps, num_ops = [alone, 0.75 * alone], prepared.problem.num_ops
        may_be_split = self.options.problem.num_shards == AUTO and not prepared.serves_any_batch
        proving = PARTS["proving_split"].of(num_ops) * may_be_split
        left = self._left(PARTS["writing"].of(num_ops) + proving)
        many, few = (comparison_seconds(num_ops, steps, num_new, each) for each in (False, True))
        return left - many, left - few

    def _left(self, reserved: float) -> float:
        """Seconds until the end without those that are reserved for what follows."""
        return self.end - self.phases.total() - reserved


def with_known_machine(
    options: OptimizeOptions,
    progress: Progress,
    phases: Phases,
    compiling: CompilingAhead,
    scratch: Path,
) -> OptimizeOptions:
    """Devices and links as measured, where real runs are to decide and there is time for it."""
    if not options.measures_machine:
        return options

    def real_runs_begin(sentence: str) -> None:
        compiling.wait(phases, progress)  # nothing else should run on this machine meanwhile
        phases.begin("measure")  # it is no part of what reading and pricing another split takes
        progress.say(sentence)

    with progress.working():
        is_taught = options.checkpoint_dir is None
        problem = on_known_machine(options.problem, scratch, real_runs_begin, is_taught)
    return dataclasses.replace(options, problem=problem)


def _read(
    options: OptimizeOptions,
    progress: Progress,
    phases: Phases,
    compiling: CompilingAhead,
    builder: ModelBuilder,
    scratch: Path,
) -> PreparedModel:
    """Reads the model and prices its ops; a graph's SavedModel begins to be made meanwhile."""
    progress.say(f"reading {options.problem.model} and pricing its ops")
    phases.begin("read")

    def split(source: SourceModel) -> None:
        if options.evaluator != "measure" and options.problem.num_shards != AUTO:
            builder.begin(source, scratch)  # both take much memory: done before a search begins

    def pricing_begins(model: LoadedModel, is_timed: bool) -> None:
        if is_timed:  # real runs that time ops wait until nothing else runs on this machine
            builder.close()
            compiling.wait(phases, progress)
            progress.say("timing its ops on the devices")
        elif options.evaluator != "measure" and options.problem.num_shards != AUTO:
            builder.begin(model.source, scratch)
        phases.begin("price")

    longer = max(options.budget_seconds - 60.0, 0.0)
    trace_seconds = PARTS["timing_ops"].of() + PARTS["timing_ops_longer"].of(longer)
    with progress.working():
        prepared = prepare(
            options.problem,
            before_pricing=pricing_begins,
            trace_seconds=trace_seconds,
            on_split=split,
            budget_seconds=options.budget_seconds,
        )
    for sentence in filter(None, (*prepared.matched, left_out_sentence(left_out(prepared.source)))):
        progress.say(sentence)
    return with_order(prepared, wanted_order(options.problem, prepared.is_present))


@contextlib.contextmanager
def _outputs(
    options: OptimizeOptions, progress: Progress
) -> Iterator[tuple[Progress, SearchLog | None, Interruption]]:
    """Makes sure that all outputs can be written; opens --logdir's log, which sees all progress."""
    folder = None if options.logdir is None else run_folder(options, time.time())
    with (
        writable(options.output_dir, options.dump_problem, folder),
        interruptible(hands_on=True) as interruption,
    ):
        log = None if folder is None else SearchLog(folder, progress, hparams_of(options))
        yield log or progress, log, interruption

"""The whole way: load, price, search, rewrite, emit, verify, time, report."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import tfplace
from graphs.build import origin_devices
from graphs.op_graph import IntArray
from graphs.problem_file import write_problem
from rewrite.emit import emit
from tfplace.algorithm_table import require_known, stages_of
from tfplace.baselines import Candidate, as_reported, baseline_candidates
from tfplace.choose import Choice, choose, confirmed
from tfplace.compare import Comparison, compare, traced_devices
from tfplace.evaluation.evaluators import evaluator_for
from tfplace.evaluation.simulating_evaluator import SimulatingEvaluator
from tfplace.options import OptimizeOptions
from tfplace.output_place import default_output_dir, require_free, staged
from tfplace.predict import best_of_prediction, predict
from tfplace.prepare import Prepared, prepared
from tfplace.report import Measured, Report, Verified
from tfplace.report_files import add_report_files, placement_files
from tfplace.search import Limits, SearchResult, search
from tfplace.verification import verified_output
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
    output_dir = options.output_dir or default_output_dir(options.problem.model)
    require_free(output_dir, options.overwrite)
    watch.stage(f"reading {options.problem.model} and pricing its ops")
    with prepared(options.problem, watch=watch) as found:
        simulator = SimulatingEvaluator(found.problem)
        watch.stage("trying the baselines")
        baselines = baseline_candidates(found, simulator, options.budget_seconds, options.seed)
        result = _search(found, options, watch)
        candidates = [*baselines, *_as_candidates(result, options.algorithm, simulator)]
        choice = choose(candidates, found.problem)
        comparison = None
        if found.runtime is not None and found.problem.num_devices > 1:
            watch.stage("measuring given, single and placed")
            if options.evaluator != "simulate":
                comparison = compare(found, candidates, choice.candidate, options.seed)
                choice = confirmed(choice, candidates, comparison)
        with staged(output_dir, options.overwrite) as filled:
            report = _emit(found, options, choice, comparison, filled, watch)
    raise NotImplementedError

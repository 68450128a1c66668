"""`tfplace optimize MODEL`."""

import contextlib
import gc
from collections.abc import Sequence

from absl import flags

from tfplace.algorithms.table import require_known
from tfplace.commands.from_flags import optimize_options
from tfplace.commands.outcome import begin, interrupted, text_output
from tfplace.interruption import interruptible
from tfplace.output_paths import writable
from tfplace.preparing.options import require_outputs
from tfplace.progress import Phases


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Optimises, prints the report, and says with the status whether Ctrl-C cut it short."""
    require_known(values.algorithm)
    phases = Phases()
    options = optimize_options(arguments[0], values)
    with writable(require_outputs(options), options.dump_problem):
        begin(arguments[0], values)
        from graphs.host.child import begin_to_fork
        from rewrite.model_builder import ModelBuilder
        from tfplace.compilation.ahead import compiling_ahead

        begin_to_fork()
        with (  # all three work beside TensorFlow's import
            compiling_ahead(options.problem.cluster, options.measures_machine) as compiling,
            ModelBuilder(options.problem.model) as builder,
        ):
            from tfplace.optimizing import optimize
            from tfplace.progress import progress_for
            from tfplace.report.text_report import print_phases, print_report

            gc.freeze()  # TensorFlow's million objects stay: nobody need look at them again
            report = optimize(options, progress_for(values.verbosity), phases, compiling, builder)
    with (  # everything is written
        contextlib.suppress(KeyboardInterrupt),
        interruptible() as interruption,
        interruption.held(),
    ):
        if out := text_output(values, report.to_json()):
            print_report(report, out)
            if values.verbosity > 0:
                print_phases(report, out)
    if report.search["interrupted"]:
        doing, num_trials = f"optimizing {arguments[0]!r}", report.search["num_trials"]
        return interrupted(doing, num_trials, f"is in {report.output_dir}")
    return 0

"""`tfplace optimize MODEL`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.algorithms.table import require_known
from tfplace.commands.error_line import print_error
from tfplace.commands.from_flags import (
    model_of,
    optimize_options,
    print_json,
    quiet_tensorflow,
)
from tfplace.interruption import interruptible

EXIT_INTERRUPTED = 5


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Optimises, prints the report, and says with the status whether Ctrl-C cut it short."""
    quiet_tensorflow(values.verbosity)
    require_known(values.algorithm)
    from tfplace.optimizing import optimize
    from tfplace.progress import progress_for
    from tfplace.report.text import console
    from tfplace.report.text_report import print_report

    options = optimize_options(model_of(arguments), values)
    report = optimize(options, progress_for(values.verbosity))
    with interruptible() as interruption, interruption.held():  # everything is written
        if values.format == "json":
            print_json(report.to_json())
        else:
            print_report(report, console())
    if report.search["interrupted"]:
        print_error(
            f"optimizing {arguments[0]!r}: interrupted after {report.search['num_trials']:,} "
            f"trials; the best so far is in {report.output_dir}"
        )
        return EXIT_INTERRUPTED
    return 0

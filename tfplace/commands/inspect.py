"""`tfplace inspect MODEL`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import model_of, print_json, problem_options, quiet_tensorflow


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Prints what is in the model."""
    quiet_tensorflow(values.verbosity)
    from tfplace.preparing.prepare import prepare
    from tfplace.report.inspection import inspect
    from tfplace.report.report import plain
    from tfplace.report.text import console
    from tfplace.report.text_inspection import print_inspection

    inspection = inspect(prepare(problem_options(model_of(arguments), values), trace=False))
    if values.format == "json":
        print_json(plain(inspection))
    else:
        print_inspection(inspection, console())
    return 0

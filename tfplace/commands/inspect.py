"""`tfplace inspect MODEL`."""

from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import begin, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Prints what is in the model."""
    begin(arguments[0], values)

    from tfplace.preparing.prepare import prepare
    from tfplace.report.inspection import inspect, print_inspection

    inspection = inspect(prepare(problem_options(arguments[0], values), trace=False))
    if out := text_output(values, inspection):
        print_inspection(inspection, out)
    return 0

"""`tfplace inspect MODEL`."""

from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import begin, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Prints what is in the model."""
    begin(arguments[0], values)

    from tfplace.report.inspection import inspect_model, print_inspection

    inspection = inspect_model(problem_options(arguments[0], values), values.largest_batch)
    if out := text_output(values, inspection):
        print_inspection(inspection, out)
    return 0

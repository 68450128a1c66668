"""`tfplace check MODEL --cluster=…`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.commands.error_line import print_error
from tfplace.commands.from_flags import (
    model_of,
    print_json,
    problem_options,
    quiet_tensorflow,
)

EXIT_DOES_NOT_RUN = 2


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Prints where the model's device strings can't be had; the status says whether all can."""
    quiet_tensorflow(values.verbosity)
    from tfplace.preparing.prepare import prepare
    from tfplace.report.device_check import check_devices
    from tfplace.report.report import plain
    from tfplace.report.text import console
    from tfplace.report.text_check import print_check, verdict
    from tfplace.simulation.simulated import simulated

    model = model_of(arguments)
    prepared = prepare(problem_options(model, values), trace=False)
    check = check_devices(prepared, simulated(prepared.problem, prepared.given))
    if values.format == "json":
        print_json(plain(check))
    else:
        print_check(check, console())
    if check.runs:
        return 0
    print_error(
        f"checking {model!r}: it {verdict(check)}; wanted devices, kernels and memory for every "
        "op; place it with `tfplace optimize`, or give another --cluster"
    )
    return EXIT_DOES_NOT_RUN

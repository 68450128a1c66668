"""`tfplace check MODEL --cluster=…`."""

import dataclasses
from collections.abc import Sequence

from absl import flags

from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import EXIT_BAD_INPUT, begin, failed, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Prints where the model's device strings can't be had; the status says whether all can.

    With --run the cluster's devices are tried first, as far as they are here.
    """
    begin(arguments[0], values)

    from graphs.errors import ConstraintError
    from tfplace.measurement.calibration.trial import try_devices
    from tfplace.preparing.prepare import prepare
    from tfplace.report.device_check import check_devices, print_check, verdict
    from tfplace.simulation.simulated import simulated

    model = arguments[0]
    try:
        options = dataclasses.replace(problem_options(model, values), as_written=True)
        prepared = prepare(options, trace=False)
    except ConstraintError as error:
        return failed(f"checking {model!r}: {error}", EXIT_BAD_INPUT)
    check = check_devices(prepared, simulated(prepared.problem, prepared.given))
    if values.run:
        tried = try_devices(prepared.cluster)
        check = dataclasses.replace(check, tried=tried, runs=check.runs and tried.works)
    if out := text_output(values, check):
        print_check(check, out)
    if check.runs:
        return 0
    return failed(
        f"checking {model!r}: it {verdict(check)}; wanted devices, kernels and memory for every "
        "op; place it with `tfplace optimize`, or give another --cluster",
        EXIT_BAD_INPUT,
    )

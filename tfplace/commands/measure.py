"""`tfplace measure MODEL [--placement=FILE]`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from graphs.errors import ClusterError
from tfplace.commands.from_flags import model_of, print_json, problem_options, quiet_tensorflow


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Times the given graph, and the placed one beside it if there is a placement.

    Their peak memory is measured afterwards, in runs of its own.
    """
    quiet_tensorflow(values.verbosity)
    from graphs.placement_file import read_placement
    from tfplace.choosing.compare import compare, compare_memory
    from tfplace.measurement.run_measurement import MeasureConfig
    from tfplace.preparing.prepare import prepare
    from tfplace.report.report import comparison_to_json, plain
    from tfplace.report.text import console
    from tfplace.report.text_timings import print_comparison, print_memory

    found = prepare(problem_options(model_of(arguments), values), trace=False)
    if not found.is_present:
        raise ClusterError(
            f"measuring on {found.cluster.name}: its devices are not present on this machine; "
            "use `tfplace simulate`, or name a --cluster that is here"
        )
    placements = {"given": found.given}
    if values.placement is not None:
        placements["placed"] = read_placement(
            values.placement,
            found.problem.graph.op_names,
            found.problem.device_names,
            found.given,
        )
    config = MeasureConfig(
        min_steps=values.steps, budget_seconds=values.budget_seconds, seed=values.seed
    )
    comparison = compare(found, placements, config, values.seed)
    memory = compare_memory(found, placements, config) if values.memory else None
    if values.format == "json":
        print_json({**comparison_to_json(comparison), "memory": plain(memory)})
    else:
        print_comparison(comparison, console())
        print_memory(memory or {}, console())
    return 0

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
    from tfplace.measurement.step_limits import StepLimits
    from tfplace.preparing.prepare import prepare
    from tfplace.report.report import plain
    from tfplace.report.text import console, print_comparison, print_memory

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
    config = StepLimits(
        min_steps=values.steps, budget_seconds=values.budget_seconds, seed=values.seed
    )
    comparison = compare(found, placements, config, values.seed)
    memory = compare_memory(found, placements, config) if values.memory else None
    if values.format == "json":
        facts = {**comparison.timings, **_without_timings(plain(comparison)), "memory": memory}
        print_json(plain(facts))
    else:
        print_comparison(comparison, console())
        print_memory(memory or {}, console())
    return 0


def _without_timings(comparison: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in comparison.items() if key != "timings"}

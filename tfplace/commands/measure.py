"""`tfplace measure MODEL [--placement=FILE]`."""

from collections.abc import Sequence

from absl import flags

from graphs.host.child import begin_to_fork
from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import begin, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Times the given graph, and the placed one beside it if there is a placement.

    Their peak memory is measured afterwards, in runs of its own.
    """
    begin(arguments[0], values)
    begin_to_fork()

    from graphs.clusters.discovery import find_cluster
    from graphs.effects import left_out, left_out_sentence
    from graphs.placement_file import placement_text
    from tfplace.choosing.real_runs.compare import compare
    from tfplace.choosing.real_runs.peak_memory import compare_memory
    from tfplace.choosing.scheduling.model_order import with_order
    from tfplace.measurement.presence import require_present
    from tfplace.measurement.training_run import StepLimits
    from tfplace.preparing.prepare import prepare
    from tfplace.progress import progress_for
    from tfplace.report.report import comparison_to_json
    from tfplace.report.text import print_facts
    from tfplace.report.text_timings import print_comparison, print_memory

    options = problem_options(arguments[0], values)
    remedy = "use `tfplace simulate`, or name a --cluster that is here"
    require_present(find_cluster(options.cluster), "measuring on", remedy)
    prepared = with_order(prepare(options, trace=False), options.order)
    acting = left_out(prepared.source)
    if acting:
        progress_for(values.verbosity).say(left_out_sentence(acting))
    placements = {"given": prepared.given}
    if values.placement is not None:
        placements["placed"] = prepared.placement_in(values.placement)
    elif prepared.order is not None:
        placements["placed"] = prepared.given  # where it lies, in order
    config = StepLimits(
        min_steps=values.steps, budget_seconds=values.budget_seconds, seed=values.seed
    )
    comparison = compare(prepared, placements, config, values.seed)
    memory = compare_memory(prepared, placements, config) if values.memory else None
    known = {"memory": memory, "left_out_of_runs": acting}
    if out := text_output(values, {**comparison_to_json(comparison), **known}):
        if values.placement is not None:
            num_ops = prepared.problem.num_ops
            print_facts([("placed", placement_text(values.placement, num_ops))], out)
        print_comparison(comparison, out)
        print_memory(memory or {}, out)
    return 0

"""`tfplace simulate MODEL --placement=FILE`."""

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from graphs.errors import ConstraintError, MemoryLimitError
from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import EXIT_BAD_INPUT, begin, failed, text_output
from tfplace.output_paths import require_files, writable, write_file

if TYPE_CHECKING:
    from graphs.op_graph import IntArray
    from tfplace.preparing.options import ProblemOptions
    from tfplace.preparing.prepare import PreparedModel
    from tfplace.simulation.simulated import Prediction


_STATUS_OF = {
    "memory": MemoryLimitError.exit_status,
    "pin": ConstraintError.exit_status,
    "colocation": ConstraintError.exit_status,
}


class SimulatedStep(NamedTuple):
    """What was prepared, the placement i4[N] that was simulated, and what it is worth."""

    prepared: "PreparedModel"
    placement: "IntArray"
    prediction: "Prediction"


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Predicts one placement: the file's, or the one that the model came with.

    The status says whether it can run.
    """
    begin(arguments[0], values)
    simulated_step = predicted(arguments[0], values)
    prepared, prediction = simulated_step.prepared, simulated_step.prediction

    from graphs.placement_file import placement_text
    from tfplace.report.report import order_text
    from tfplace.report.text import print_facts
    from tfplace.report.text_report import print_prediction, simulation_facts, simulation_sentences
    from tfplace.simulation.simulated import placements_per_second

    placement, options = simulated_step.placement, problem_options(arguments[0], values)
    facts = simulation_facts(prepared, options, placement, prediction.step_seconds is not None)
    speed = None
    if values.repeat is not None:
        speed = placements_per_second(prepared.problem, placement, values.repeat)
    if out := text_output(values, {**vars(prediction), "placements_per_second": speed, **facts}):
        print_prediction(prediction, out)
        told = "the one that the model came with"
        if values.placement is not None:
            told = placement_text(values.placement, len(placement))
        print_facts([("placement", told)], out)
        if prediction.order is not None:
            seconds = prediction.step_seconds or math.inf
            print_facts([("order", order_text(prediction.order, seconds))], out)
        print_facts(simulation_sentences(facts), out)
        if speed is not None:
            print(f"speed     {speed:,.0f} placements a second on {os.cpu_count()} cores")
    if prediction.feasible:
        return 0
    return failed(
        f"simulating {arguments[0]!r} on {values.cluster}: the placement can't run: "
        f"{prediction.reason}; wanted one that keeps to memory, kernels, pins and colocation; "
        "change it, or let `tfplace optimize` find one",
        _STATUS_OF.get(prediction.obstacle, EXIT_BAD_INPUT),
    )


def predicted(model: str, values: flags.FlagValues) -> SimulatedStep:
    """A placement and what it is worth; writes the files that were asked for.

    Raises:
      TfplaceError: the model, the cluster, the placement or a file's path is no good.
    """
    options = problem_options(model, values)
    files = {"--dump_problem": values.dump_problem, "--timeline": values.timeline}
    require_files(files, [*options.files_read, *filter(None, [values.placement])])
    with writable(values.dump_problem, values.timeline):
        return _predicted(options, values)


def _predicted(options: "ProblemOptions", values: flags.FlagValues) -> SimulatedStep:
    from graphs.problem_file import write_problem
    from tfplace.choosing.scheduling.model_order import order_facts, simulated_in_order, with_order
    from tfplace.preparing.prepare import prepare
    from tfplace.simulation.simulated import prediction_of
    from tfplace.simulation.timeline import chrome_trace

    prepared = with_order(prepare(options), options.order)
    placement = prepared.given
    if values.placement is not None:
        placement = prepared.placement_in(values.placement)
    placed, facts = simulated_in_order(prepared, placement), order_facts(prepared, placement)
    if values.dump_problem is not None:
        write_problem(values.dump_problem, placed.problem, placed.device_of_op)
    if values.timeline is not None:
        trace = chrome_trace(placed.problem, placed.known_schedule())
        write_file(values.timeline, json.dumps(trace).encode(), overwrite=True)
    prediction = dataclasses.replace(prediction_of(placed), order=facts)
    return SimulatedStep(prepared, placement, prediction)

"""What `tfplace optimize` and `tfplace simulate` print."""

import os
import textwrap
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphs.counted import counted
from graphs.effects import left_out_sentence
from graphs.op_graph import IntArray
from graphs.protos import JsonObject
from rewrite.verify import Verified
from tfplace.algorithms.placers.legal import working_devices
from tfplace.choosing.data_parallel import DataParallel, data_parallel_baseline
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.proving.run_estimate import split_proof_sentence
from tfplace.report.explaining.parallelism import parallelism_facts, parallelism_of
from tfplace.report.report import Report, data_parallel_sentence, is_untried, order_text
from tfplace.report.split_facts import shards_sentences, split_facts, split_sentences
from tfplace.report.text import print_facts, table
from tfplace.report.text_calibration import machine_text
from tfplace.report.text_timings import comparison_facts, rounds_facts
from tfplace.simulation.simulated import Best, Prediction
from tfplace.units_text import bytes_text, cost_sentence, seconds_text, share_text

MAX_REASON = 160
_INDENT = " " * 10
# What follows the call that loads it: the rest of its line, and another one.
_THEN = {
    "": (
        ", which keeps variables on their devices;",
        "tf.saved_model.load computes the same but may move weights every step",
    ),
    "workers": (
        ", which starts worker processes and keeps variables on them;",
        "they end with your program; tf.saved_model.load alone finds none",
    ),
    "connection": (
        " in a process that is connected to the tasks;",
        "how: tfplace/docs/multiple_hosts.md; without, no such devices exist",
    ),
}
_SAVE_PIECES = """\
save it   call tfplace.make_whole(model) before you read or save its variables:
          after a step those that are cut are empty, their values in pieces"""
STYLE_OF_VERDICT = {"placed": "bold green", "kept_single": "bold yellow", "kept_given": "bold"}


def print_report(report: Report, out: Console) -> None:
    """Prints what a person wants to know first, verdict last."""
    memory = {device["name"]: device["memory_bytes"] for device in report.cluster["devices"]}
    print_facts(_what_was_placed(report), out)
    out.print(_step_times(report))
    out.print(_devices(report.best, memory))
    if report.by_devices:
        out.print(_by_devices(report))
    print_facts(_what_it_is_worth(report), out)
    _print_how_to_load(report, out)


def print_phases(report: Report, out: Console) -> None:
    """Prints how long each phase of the run took, and all of them."""
    phases = table(("phase", "seconds"))
    for name, seconds in report.seconds_by_phase.items():
        phases.add_row(name, f"{seconds:.1f}")
    phases.add_row("in all", f"{sum(report.seconds_by_phase.values()):.1f}", style="bold")
    out.print(phases)


def print_prediction(prediction: Prediction, out: Console) -> None:
    """Prints what the simulator says of one placement."""
    word = "" if prediction.feasible else f", but it can't run: {prediction.reason}"
    step = f"{seconds_text(prediction.step_seconds)} a step{word}"
    print_facts([("predicted", step)], out)
    out.print(_devices(prediction, prediction.memory_bytes))
    print_facts([("links", _links(prediction, prediction.communication))], out)


def _what_was_placed(report: Report) -> Iterator[tuple[str, str]]:
    model, search, costs = report.model, report.search, report.costs
    yield "model", f"{model['path']} ({model['kind']}), {counted(model['num_ops'], 'op')}"
    yield "run", model["step_origin"]
    for key in ("guessed", "matched", "units", "opened"):
        yield from ((key.removesuffix("s"), sentence) for sentence in model.get(key, ()))
    if sentence := left_out_sentence(model.get("left_out_of_runs", {})):
        yield "runs", sentence
    if report.split is not None:
        yield from split_sentences(report.split)
    yield from shards_sentences(report.shards_tried)
    if report.order is not None:
        yield "order", order_text(report.order, report.best.step_seconds)
    num_devices = len(report.cluster["devices"])
    yield "cluster", f"{report.cluster['name']}, {counted(num_devices, 'device')}"
    if report.measured is not None or report.rounds:  # else they are not here
        yield "machine", machine_text(report.cluster)
    yield "costs", cost_sentence(costs)
    yield from (("", note) for note in costs.get("notes", ()))
    if search["num_trials"]:
        yield (
            "search",
            f"{report.algorithm}: {counted(search['num_trials'], 'trial')}, "
            f"{search['num_infeasible']:,} infeasible, {search['seconds']:.1f} s, "
            f"{search['trials_per_second']:,.0f} trials/s",
        )
    beside = [each for each in search["beside"] if each["num_trials"]]
    for number, each in enumerate(beside):
        label = "" if number or search["num_trials"] else "search"
        trials = counted(each["num_trials"], "trial")
        yield label, f"{each['name']}: {trials}, {each['seconds']:.1f} s"


def _what_it_is_worth(report: Report) -> Iterator[tuple[str, str | Text]]:
    yield "links", _links(report.best, report.cluster["communication"])
    if sentence := data_parallel_sentence(report.baselines):
        yield "compare", sentence
    if report.needed_sentence:
        yield "needed", report.needed_sentence
    if report.bound_sentence:
        yield "bound", report.bound_sentence
    yield from rounds_facts(report.rounds)
    if report.measured is not None:
        yield from comparison_facts(report.measured, is_kept=report.verdict != "placed")
        used = report.measured.devices_used.items()
        yield (
            "ran on",
            ", ".join(f"{name}: {counted(int(u['ops']), 'op')}" for name, u in used)
            or "not known: it was not traced",
        )
    if report.prediction_sentence:
        yield "note", report.prediction_sentence
    yield from _verified(report)
    if report.search["interrupted"]:
        yield "stopped", "interrupted; this is the best found until then"
    verdict = Text(f"{report.verdict}: ", style=STYLE_OF_VERDICT[report.verdict])
    yield "verdict", verdict + Text(report.verdict_sentence)
    if report.sensitivity is not None:
        yield "if off", report.sensitivity["sentence"]
    yield from (("advice", sentence) for sentence in report.advice["sentences"])


def _step_times(report: Report) -> Table:
    times = table(("placement", "predicted", "of single", "fullest device"))
    single = report.baselines["single"].step_seconds
    for name, baseline in report.baselines.items():
        why_not = "not tried" if is_untried(baseline.reason) else "can't run"
        seconds = seconds_text(baseline.step_seconds) if baseline.feasible else why_not
        if name == "single" and baseline.num_devices > 1:
            name = "single, but for pins"
        times.add_row(
            name, seconds, _ratio(baseline.step_seconds, single), _fullest(baseline.peak_bytes)
        )
    best, bound = report.best, report.lower_bound_seconds
    times.add_row(
        "written",
        seconds_text(best.step_seconds),
        _ratio(best.step_seconds, single),
        _fullest(best.peak_bytes),
        style="bold",
    )
    if bound:
        times.add_row("lower bound", seconds_text(bound), _ratio(bound, single), "")
    if report.any_split:
        least = report.any_split["lower_bound_seconds"]
        times.add_row("... of any split", seconds_text(least), _ratio(least, single), "")
    return times


def _by_devices(report: Report) -> Table:
    """The best step found on 1, 2, 4, ... devices."""
    rows = table(("at most", "predicted", "of single", "transfers"))
    single = report.baselines["single"].step_seconds
    for row in report.by_devices:
        name = f"{row.max_devices} device{'s' if row.max_devices > 1 else ''}"
        is_found = row.step_seconds is not None
        seconds = seconds_text(row.step_seconds) if is_found else "none found"
        moved = f"{row.transfers:,}" if is_found else "-"
        rows.add_row(name, seconds, _ratio(row.step_seconds, single), moved)
    return rows


def _ratio(seconds: float | None, single: float | None) -> str:
    return "-" if not seconds or not single else f"{seconds / single:.3f}"


def _fullest(peak_bytes: Mapping[str, int]) -> str:
    return bytes_text(max(peak_bytes.values(), default=0))


def _devices(best: Best | Prediction, memory_bytes: Mapping[str, int]) -> Table:
    devices = table(("device", "ops", "busy", "peak", "memory"))
    for name, ops in best.ops_per_device.items():
        devices.add_row(
            name,
            f"{ops:,}",
            share_text(best.busy_share.get(name, 0.0)),
            bytes_text(best.peak_bytes.get(name, 0)),
            bytes_text(memory_bytes[name]),
        )
    return devices


def _links(best: Best | Prediction, communication: str) -> str:
    moved = f"{counted(best.transfers, 'transfer')}, {bytes_text(best.transfer_bytes)}"
    return f"{moved} a step, {communication} channels"


def _verified(report: Report) -> Iterator[tuple[str, str]]:
    verified = report.verified
    if verified.structure:
        same = f"by structure; the same are {', '.join(verified.structure_compared)}"
        fails = f"the written step fails when it is run ({verified.fails}); "
        yield ("unproven", fails + same) if verified.fails else ("proven", same)
    if verified.split is not None:
        yield "", split_proof_sentence(verified.split, verified.run)
    yield "verified", run_sentence(verified)
    if verified.outputs_equal and verified.not_compared:
        count, first = len(verified.not_compared), shortened(verified.not_compared[0])
        more = f" ({count - 1:,} more: report.json)" if count > 1 else ""
        yield "", f"not compared: {first}{more}"


def run_sentence(verified: Verified) -> str:
    """What was compared by running both models; "equal" only where the run itself was."""
    num_compared = len(verified.compared)
    if verified.outputs_equal:
        equal = counted(
            num_compared,
            "value of given and emitted model is equal",
            "values of given and emitted model are equal",
        )
        return f"{equal}, largest difference {verified.max_abs_diff:.3g}"
    return f"the run was not compared: {shortened(verified.run.removeprefix('not run: '))}"


def shortened(why: str) -> str:
    """The beginning of a reason, which may be all of a user's error message; report.json has it."""
    return textwrap.shorten(why, MAX_REASON, placeholder=" ...")


def _print_how_to_load(report: Report, out: Console) -> None:
    """Paths are not wrapped, so that they can be copied."""
    out.print(f"written   {report.output_dir}", soft_wrap=True)
    if not os.path.exists(os.path.join(report.output_dir, "saved_model.pb")):
        return  # --emit asked for other forms only
    same_line, next_line = _THEN[report.loading_needs]
    mark, _, rest = same_line.partition(" ")
    is_long = len(report.loading_call) + len(same_line) + len(_INDENT) > out.width
    space = f"\n{_INDENT}" if is_long else " "
    out.print(f"load it   {report.loading_call}{mark}{space}{rest}", soft_wrap=True)
    out.print(f"{_INDENT}{next_line}", soft_wrap=True)
    if report.split is not None and report.split["weights"]:
        out.print(_SAVE_PIECES)


# What `tfplace simulate` says beside the prediction: the split, the kind of parallelism.


def simulation_facts(
    prepared: PreparedModel, options: ProblemOptions, device_of_op: IntArray, can_run: bool
) -> JsonObject:
    """`split`, `parallelism` and `data_parallel`, as report.json has them.

    Args:
      device_of_op: i4[N].
      can_run: whether every op lies where it has a kernel; nothing is told of a step that can't.
    """
    problem, baseline = prepared.problem, None
    split, num_devices = prepared.split, len(working_devices(problem))
    if split is not None and split.num_shards == num_devices:
        baseline = data_parallel_baseline(prepared, options)
    kind = parallelism_facts(parallelism_of(problem, device_of_op), problem) if can_run else None
    return {"split": split_facts(prepared.split), "parallelism": kind, "data_parallel": baseline}


def simulation_sentences(facts: JsonObject) -> Iterator[tuple[str, str]]:
    """The same for a person."""
    if facts["split"] is not None:
        yield from split_sentences(facts["split"])
    if facts["parallelism"] and facts["parallelism"]["sentence"]:
        yield "kind", facts["parallelism"]["sentence"]
    if facts["data_parallel"] is not None:
        yield "compare", _baseline(facts["data_parallel"])


def _baseline(baseline: DataParallel) -> str:
    if baseline.step_seconds is None:
        return f"shard i on device i can't run: {baseline.reason}"
    return (
        f"shard i on device i: {seconds_text(baseline.step_seconds)} a step, "
        f"{counted(baseline.num_transfers, 'transfer')}, {bytes_text(baseline.transfer_bytes)}"
    )

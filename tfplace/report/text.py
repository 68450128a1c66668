"""The report as a table on a terminal, at 80 columns."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfplace.choosing.compare import Comparison, MemoryPeak
from tfplace.measurement.timing import Timing
from tfplace.report.report import Measured, Report
from tfplace.simulation.prediction import Best, Prediction
from tfplace.units_text import bytes_text, cost_sentence, seconds_text, share_text

WIDTH = 80
MAX_SENTENCES = 5
_TRAILING = re.compile(r"[ \t]+(?=\n)")
STYLE_OF_VERDICT = {"placed": "bold green", "kept_single": "bold yellow", "kept_given": "bold"}


def console() -> Console:
    """Standard output; colours only on a terminal and without NO_COLOR."""
    found = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
    if found.is_terminal:
        return found
    trimmed = cast(TextIO, _Trimmed(sys.stdout))
    return Console(file=trimmed, width=WIDTH, highlight=False, no_color=True)


class _Trimmed(io.TextIOBase):
    """A text stream whose lines lose the spaces that rich fills a table's last column with."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_TRAILING.sub("", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def print_report(report: Report, out: Console) -> None:
    """Prints what a person wants to know first, verdict last."""
    out.print(_head(report))
    out.print(_step_times(report))
    memory = {device["name"]: device["memory_bytes"] for device in report.cluster["devices"]}
    out.print(_devices(report.best, memory))
    transfers = f"{report.best.transfers:,} transfers, {bytes_text(report.best.transfer_bytes)}"
    out.print(f"links     {transfers} a step, {report.cluster['communication']} channels")
    if report.bound_sentence:
        out.print(_line("bound", report.bound_sentence))
    if report.measured is not None:
        _print_measured(report.measured, out)
    _print_verified(report, out)
    if report.search["interrupted"]:
        out.print(_line("stopped", "interrupted; this is the best found until then"))
    style = STYLE_OF_VERDICT[report.verdict]
    verdict = Text(f"{report.verdict}: ", style=style) + Text(report.verdict_sentence)
    out.print(_line("verdict", verdict))
    for sentence in report.advice["sentences"]:
        out.print(_line("advice", sentence))
    _print_how_to_load(report, out)


def _head(report: Report) -> Table:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=9)
    rows.add_column(overflow="fold")
    model, search, costs = report.model, report.search, report.costs
    rows.add_row("model", f"{model['path']} ({model['kind']}), {model['num_ops']:,} ops")
    rows.add_row("run", f"{model['step_origin']}")
    for sentence in model["guessed"]:
        rows.add_row("guessed", sentence)
    for sentence in model["units"]:
        rows.add_row("unit", sentence)
    for sentence in model.get("opened", ()):
        rows.add_row("opened", sentence)
    rows.add_row("cluster", f"{report.cluster['name']}, {len(report.cluster['devices'])} devices")
    rows.add_row("costs", cost_sentence(costs))
    for note in costs.get("notes", ()):
        rows.add_row("", note)
    if search["num_trials"]:
        rows.add_row(
            "search",
            f"{report.algorithm}: {search['num_trials']:,} trials, "
            f"{search['num_infeasible']:,} infeasible, {search['seconds']:.1f} s, "
            f"{search['trials_per_second']:,.0f} trials/s",
        )
    return rows


def _step_times(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
    for name, justify in (("placement", "left"), ("predicted", "right"), ("of single", "right"),
                          ("fullest device", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    single = report.baselines["single"].step_seconds
    for name, baseline in report.baselines.items():
        peak = max(baseline.peak_bytes.values(), default=0)
        ratio = _ratio(baseline.step_seconds, single)
        seconds = seconds_text(baseline.step_seconds) if baseline.feasible else "can't run"
        table.add_row(name, seconds, ratio, bytes_text(peak))
    table.add_row(
        "written",
        seconds_text(report.best.step_seconds),
        _ratio(report.best.step_seconds, single),
        bytes_text(max(report.best.peak_bytes.values(), default=0)),
        style="bold",
    )
    if report.lower_bound_seconds:
        table.add_row("lower bound", seconds_text(report.lower_bound_seconds),
                      _ratio(report.lower_bound_seconds, single), "")  # fmt: skip
    return table


def _ratio(seconds: float | None, single: float | None) -> str:
    return "-" if not seconds or not single else f"{seconds / single:.3f}"


def _devices(best: Best | Prediction, memory_bytes: Mapping[str, int]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name, justify in (("device", "left"), ("ops", "right"), ("busy", "right"),
                          ("peak", "right"), ("memory", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, ops in best.ops_per_device.items():
        table.add_row(
            name,
            f"{ops:,}",
            share_text(best.busy_share.get(name, 0.0)),
            bytes_text(best.peak_bytes.get(name, 0)),
            bytes_text(memory_bytes[name]),
        )
    return table


def print_prediction(prediction: Prediction, out: Console) -> None:
    """Prints what `tfplace simulate` found."""
    word = "" if prediction.feasible else f", but it can't run: {prediction.reason}"
    out.print(f"predicted {seconds_text(prediction.step_seconds)} a step{word}")
    out.print(_devices(prediction, prediction.memory_bytes))
    out.print(
        f"links     {prediction.transfers:,} transfers, "
        f"{bytes_text(prediction.transfer_bytes)} a step, {prediction.communication} channels"
    )


def _print_measured(measured: Measured, out: Console) -> None:
    print_comparison(measured, out)
    out.print(_line("ran on", _used_text(measured.devices_used)))


def print_comparison(measured: Measured | Comparison, out: Console) -> None:
    """Prints step times that were measured side by side."""
    for name, timing in measured.timings.items():
        out.print(f"measured  {name}: {_timing_text(timing)}")
    low, high = measured.speedup_ci95
    if measured.baseline:
        out.print(
            f"speed-up  {measured.speedup:.2f}x over {measured.baseline} "
            f"(95 % interval {low:.2f} to {high:.2f}), through {measured.through}"
        )
        out.print(_line("", f"placed against {measured.baseline}: {measured.verdict}"))
    for sentence in measured.noise:
        out.print(_line("noise", sentence))


def print_memory(memory: Mapping[str, Mapping[str, MemoryPeak] | str], out: Console) -> None:
    """Prints peak memory, predicted beside measured."""
    for name, peaks in memory.items():
        if isinstance(peaks, str):
            out.print(_line("memory", f"{name}: could not run: {peaks}"))
            continue
        for device, peak in peaks.items():
            measured = peak.measured_bytes
            told = "not counted there" if measured is None else f"{bytes_text(measured)} measured"
            predicted = f"{bytes_text(peak.predicted_bytes)} predicted"
            out.print(_line("memory", f"{name}: {device}: {predicted}, {told}"))


def _timing_text(timing: Timing | str) -> str:
    if isinstance(timing, str):
        return f"could not run: {timing}"
    return (
        f"{seconds_text(timing.median_seconds)} a step (p10 {seconds_text(timing.p10)}, "
        f"p90 {seconds_text(timing.p90)}, {timing.runs} runs)"
    )


def _used_text(used: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{name}: {int(use['ops']):,} ops" for name, use in used.items()) or "unknown"


def _print_verified(report: Report, out: Console) -> None:
    verified = report.verified
    text = "nothing of given and emitted model could be compared"
    if verified.compared:
        text = (
            f"{len(verified.compared)} values of given and emitted model are equal, largest "
            f"difference {verified.max_abs_diff:.3g}"
        )
    out.print(_line("verified", text))
    for sentence in verified.not_compared[:MAX_SENTENCES]:
        out.print(_line("", f"not compared: {sentence}"))
    if len(verified.not_compared) > MAX_SENTENCES:
        out.print(_line("", f"and {len(verified.not_compared) - MAX_SENTENCES} more (report.json)"))


def _line(name: str, text: str | Text) -> Table:
    """A name and what belongs to it, wrapped beside it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    grid.add_column(overflow="fold")
    grid.add_row(name, text)
    return grid


def _print_how_to_load(report: Report, out: Console) -> None:
    out.print(f"written   {report.output_dir}", soft_wrap=True)
    if not os.path.exists(os.path.join(report.output_dir, "saved_model.pb")):
        return  # --emit asked for other forms only
    out.print(
        f"load it   tfplace.load({report.output_dir!r}), which keeps variables on their devices;",
        soft_wrap=True,
    )
    out.print("          tf.saved_model.load computes the same but may move weights every step")

"""Step times as bars: baselines, what was written, the bound; real runs beside them."""

from __future__ import annotations

from tfplace.measurement.timing import Timing
from tfplace.report.html.elements import paragraph, section, table, text
from tfplace.report.report import Measured, Report
from tfplace.report.sentences import data_parallel_sentence, is_untried
from tfplace.report.text_timings import rounds_facts, same_timings
from tfplace.units_text import seconds_text

NAMES = {
    "given": "given (as it came)",
    "single": "single (one device)",
    "topological": "topological",
    "etf": "earliest task first",
    "local_search": "local search",
    "data_parallel": "data parallelism (the batch split evenly)",
}
CANT_RUN = "can't run: "


def step_bars(report: Report) -> str:
    """The section of the page: predicted bars, the bound, measured times."""
    single = report.baselines.get("single")
    reference = single.step_seconds if single and single.feasible else None
    rows = [
        (NAMES.get(key, key), b.step_seconds if b.feasible else None, b.reason, "")
        for key, b in report.baselines.items()
    ]
    rows.append(("written", report.best.step_seconds, "", "best"))
    if report.lower_bound_seconds:
        rows.append(("proven lower bound", report.lower_bound_seconds, "", "bound"))
    if report.any_split:
        least = report.any_split["lower_bound_seconds"]
        rows.append(("lower bound of any split", least, "", "bound"))
    longest = max((seconds for _, seconds, _, _ in rows if seconds), default=1.0)
    lines = [_row(*row, longest, reference) for row in rows]
    return section(
        "times",
        "Step time",
        f"<div role='list'>{''.join(lines)}</div>",
        paragraph(report.bound_sentence),
        paragraph(data_parallel_sentence(report.baselines)),
        *map(paragraph, report.advice["sentences"]),
        _by_devices(report),
        *(paragraph(sentence) for _, sentence in rounds_facts(report.rounds)),
        _measured(report.measured),
        paragraph(report.prediction_sentence),
    )


def _by_devices(report: Report) -> str:
    """The best step found on 1, 2, 4, ... devices."""
    if not report.by_devices:
        return ""
    rows = [
        (str(row.max_devices), seconds_text(row.step_seconds),
         str(row.num_devices or "the CPU alone"), f"{row.transfers:,}")  # CPUs aren't counted
        if row.step_seconds
        else (str(row.max_devices), text(row.reason), "", "")
        for row in report.by_devices
    ]  # fmt: skip
    head = ("devices at most", "best step found", "devices used", "transfers")
    return paragraph(report.needed_sentence) + table(head, rows)


def _row(
    name: str,
    seconds: float | None,
    reason: str,
    kind: str,
    longest: float,
    reference: float | None,
) -> str:
    value, share = f"{'' if is_untried(reason) else CANT_RUN}{text(reason)}", 0.0
    if seconds is not None:
        value, share = f"<b>{seconds_text(seconds)}</b>", 100 * seconds / longest
        if reference:
            value += f" <small>{seconds / reference:.2f} of single</small>"
    return (
        f"<div class='bar {kind}' role='listitem'><span>{text(name)}</span>"
        f"<div class='track'><div style='width:{share:.2f}%'></div></div><span>{value}</span></div>"
    )


def _measured(measured: Measured | None) -> str:
    if measured is None:
        return (
            "<p class='note'>Predicted by the simulator. Not measured: the cluster's devices are "
            "not here, there is only one, or real runs were not asked for.</p>"
        )
    rows = [(text(names), *_timing_cells(timing)) for names, timing in same_timings(measured)]
    sentence = ""
    if measured.baseline and not measured.is_with_itself:
        low, high = measured.speedup_ci95
        sentence = (
            f"<p><b>Measured {measured.speedup:.2f}x</b> as fast as {text(measured.baseline)} "
            f"(95 % interval {low:.2f} to {high:.2f}, runs through {text(measured.through)}): "
            f"{text(measured.verdict)}.</p>"
        )
    notes = "".join(paragraph(note, "note") for note in measured.noise)
    head = ("measured", "median", "p10", "p90", "runs")
    return sentence + table(head, rows) + _tried(measured) + notes


def _tried(measured: Measured) -> str:
    """The best few placements found, and why real runs chose one of them."""
    if not measured.tried:
        return ""
    rows = [
        (text(each.name), seconds_text(each.predicted_seconds),
         seconds_text(each.measured_seconds), text(each.why))
        for each in measured.tried
    ]  # fmt: skip
    return table(("tried", "predicted", "measured", "why it won or lost"), rows)


def _timing_cells(timing: Timing | str) -> tuple[str, str, str, str]:
    if isinstance(timing, str):
        return text(timing), "", "", ""
    numbers = (timing.median_seconds, timing.p10, timing.p90)
    middle, low, high = (seconds_text(seconds) for seconds in numbers)
    return middle, low, high, str(timing.runs)

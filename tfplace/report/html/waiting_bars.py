"""Bars: what a step consists of, and which device waits for what, with a sentence for each."""

from collections.abc import Iterable

from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.waiting import (
    NOTHING,
    OP,
    SENDING,
    SHOWN_SHARE,
    TRANSFER,
    longest_wait,
    wait_text,
)
from tfplace.report.html.elements import colours, facts, paragraph, section, swatch, table, text
from tfplace.report.report import Report, data_parallel_sentence, is_untried
from tfplace.report.text_timings import comparison_facts, rounds_facts
from tfplace.units_text import seconds_text, share_text

LABEL_SHARE = 0.1
"""Share of the step; parts of a bar that are narrower hold no figure."""


def waiting_bars(explained: Explained) -> str:
    """The section of the page: a summary, a bar for each device, and the longest chain."""
    rows = "".join(_device_bar(explained, device) for device in range(len(explained.names)))
    return section(
        "waiting",
        "Which device waits for what",
        f"<p>{text(summary(explained))}</p>",
        LEGEND,
        rows + _chain_bar(explained),
    )


LEGEND = (
    "<ul class='legend'><li><i class='p d1'></i>computes</li>"
    "<li><i class='p d1 op'></i>waits for an op on the device of that colour</li>"
    "<li><i class='p d1 transfer'></i>waits for a transfer from the device of that colour</li>"
    "<li><i class='p nothing'></i>has nothing left to do</li></ul>"
)


def summary(explained: Explained) -> str:
    """The one thing to know: who is busiest, and who waits most for what."""
    makespan, names = explained.schedule.makespan, explained.names
    busy = [time.computing_seconds for time in explained.times]
    if not makespan or not any(busy):
        return "No op takes any time."
    first = busy.index(max(busy))
    told = (
        f"{names[first]} is the busiest: it computes {share_text(busy[first] / makespan)} of the "
        "step."
    )
    longest = longest_wait(explained.times, makespan)
    if longest is not None:
        device, kind, other, seconds = longest
        cause = wait_text(kind, other, device, names)
        told += (
            f" The longest wait is that of {names[device]}: {share_text(seconds / makespan)} of "
            f"the step {cause}."
        )
    moving = sum(seconds for (kind, _), seconds in explained.chain.items() if kind == TRANSFER)
    return (
        f"{told} The chain of ops and transfers that ends the step is "
        f"{share_text(1.0 - moving / makespan)} ops and {share_text(moving / makespan)} transfers."
    )


def _device_bar(explained: Explained, device: int) -> str:
    time, label = explained.times[device], explained.names[device]
    parts = [("", device, time.computing_seconds, f"{label} computes")]
    for (kind, other), seconds in time.waits.items():
        told = f"waits {wait_text(kind, other, device, explained.names)}"
        if kind == NOTHING:
            told = "has nothing left to do"
        # A device that copies is drawn like one that waits for an op of its own.
        parts.append((OP if kind == SENDING else kind, other, seconds, f"{label} {told}"))
    name = swatch(colours(explained.problem)[device], label)
    return _bar(explained, name, parts, explained.sentences()[device])


def _chain_bar(explained: Explained) -> str:
    makespan = explained.schedule.makespan or 1.0
    words = {
        key: f"{'ops on' if key[0] == OP else 'transfers from'} {explained.names[key[1]]}"
        for key in explained.chain
    }
    parts = [
        ("" if kind == OP else TRANSFER, device, seconds, words[kind, device])
        for (kind, device), seconds in explained.chain.items()
    ]
    shown = ", ".join(
        f"{share_text(seconds / makespan)} {words[key]}"
        for key, seconds in explained.chain.items()
        if seconds / makespan >= SHOWN_SHARE
    )
    sentence = f"The chain that ends the step: {shown}. Shorten it, or nothing is gained"
    return _bar(explained, "<span class='device'>longest chain</span>", parts, sentence, " chain")


def _bar(
    explained: Explained,
    name: str,
    parts: Iterable[tuple[str, int, float, str]],
    sentence: str,
    kind: str = "",
) -> str:
    """A named stack of parts, one step wide, and the sentence that says the same."""
    makespan, colour = explained.schedule.makespan or 1.0, colours(explained.problem)
    stack = ""
    for shade, device, seconds, what in parts:
        share = seconds / makespan
        tint = colour[device] if device >= 0 else 0
        stack += (
            f"<div class='p d{tint} {shade}' style='width:{100 * share:.3f}%' "
            f"title='{text(f'{what}: {seconds_text(seconds)}')}'>"
            f"<span>{share_text(share) if share >= LABEL_SHARE else ''}</span></div>"
        )
    return (
        f"<div class='wait{kind}'>{name}"
        f"<div class='stack' role='img' aria-label='{text(sentence)}'>{stack}</div>"
        f"<p>{text(sentence)}.</p></div>"
    )


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
    return section(
        "times",
        "Step time",
        f"<div role='list'>{''.join([_row(*row, longest, reference) for row in rows])}</div>",
        paragraph(report.bound_sentence),
        paragraph(data_parallel_sentence(report.baselines)),
        *map(paragraph, report.advice["sentences"]),
        _by_devices(report),
        *(paragraph(sentence) for _, sentence in rounds_facts(report.rounds)),
        _measured(report),
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


def _measured(report: Report) -> str:
    """What the text report says of real runs; a note where there were none."""
    if report.measured is None:
        return (
            "<p class='note'>Predicted by the simulator. Not measured: the cluster's devices are "
            "not here, there is only one, or real runs were not asked for.</p>"
        )
    told = comparison_facts(report.measured, is_kept=report.verdict != "placed")
    return facts([(name, text(what)) for name, what in told])

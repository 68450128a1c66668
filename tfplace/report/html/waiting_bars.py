"""Which device waits for what: a stacked bar and a sentence for each device."""

from __future__ import annotations

from collections.abc import Mapping

from tfplace.report.explaining.causes import NOTHING, OP, SENDING, TRANSFER
from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.waiting import SHOWN_SHARE, longest_wait, wait_text
from tfplace.report.html.elements import colours, section, swatch, text
from tfplace.units_text import seconds_text, share_text

LABEL_SHARE = 0.1
"""Narrower parts of a bar hold no figure."""


def waiting_bars(explained: Explained) -> str:
    """The section."""
    makespan = explained.schedule.makespan or 1.0
    colour = colours(explained.problem)
    rows = [
        _row(explained, device, colour, makespan, sentence)
        for device, sentence in enumerate(explained.sentences())
    ]
    return section(
        "waiting",
        "Which device waits for what",
        f"<p>{text(summary(explained))}</p>",
        LEGEND,
        f"<div class='waits'>{''.join(rows)}{_chain(explained, colour, makespan)}</div>",
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
    working = [device for device, seconds in enumerate(busy) if seconds > 0.0]
    if not makespan or not working:
        return "No op takes any time."
    first = max(working, key=lambda device: busy[device])
    share = share_text(busy[first] / makespan)
    told = f"{names[first]} is the busiest: it computes {share} of the step."
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


def _row(
    explained: Explained, device: int, colour: list[int], makespan: float, sentence: str
) -> str:
    time = explained.times[device]
    parts = {(OP, device): time.computing_seconds}
    bar = _bar(explained, parts, device, colour, makespan, is_computing=True)
    bar += _bar(explained, time.waits, device, colour, makespan)
    return (
        f"<div class='wait'>{swatch(colour[device], explained.names[device])}"
        f"<div class='stack' role='img' aria-label='{text(sentence)}'>{bar}</div>"
        f"<p>{text(sentence)}.</p></div>"
    )


def _chain(explained: Explained, colour: list[int], makespan: float) -> str:
    parts = [
        f"{share_text(seconds / makespan)} {'ops on' if kind == OP else 'transfers from'} "
        f"{explained.names[device]}"
        for (kind, device), seconds in explained.chain.items()
        if seconds / makespan >= SHOWN_SHARE
    ]
    sentence = f"The chain that ends the step: {', '.join(parts)}. Shorten it, or nothing is gained"
    bar = "".join(
        _part(
            "transfer" if kind == TRANSFER else "",
            colour[device],
            seconds / makespan,
            f"{'transfers from' if kind == TRANSFER else 'ops on'} {explained.names[device]}: "
            f"{seconds_text(seconds)}",
        )
        for (kind, device), seconds in explained.chain.items()
    )
    return (
        "<div class='wait chain'><span class='device'>longest chain</span>"
        f"<div class='stack' role='img' aria-label='{text(sentence)}'>{bar}</div>"
        f"<p>{text(sentence)}.</p></div>"
    )


def _bar(
    explained: Explained,
    parts: Mapping[tuple[str, int], float],
    own: int,
    colour: list[int],
    makespan: float,
    is_computing: bool = False,
) -> str:
    lines = []
    for (kind, device), seconds in parts.items():
        told = (
            "computes" if is_computing else f"waits {wait_text(kind, device, own, explained.names)}"
        )
        if kind == NOTHING:
            told = "has nothing left to do"
        shade = "" if is_computing else {SENDING: OP}.get(kind, kind)
        tint = colour[device] if device >= 0 else 0
        tip = f"{explained.names[own]} {told}: {seconds_text(seconds)}"
        lines.append(_part(shade, tint, seconds / makespan, tip))
    return "".join(lines)


def _part(shade: str, colour: int, share: float, tip: str) -> str:
    label = share_text(share) if share >= LABEL_SHARE else ""
    return (
        f"<div class='p d{colour} {shade}' style='width:{100 * share:.3f}%' title='{text(tip)}'>"
        f"<span>{label}</span></div>"
    )

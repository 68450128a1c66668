"""Which device waits for what: a stacked bar and a sentence for each device."""

from __future__ import annotations

from collections.abc import Iterable

from tfplace.report.explaining.causes import NOTHING, OP, SENDING, TRANSFER
from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.waiting import SHOWN_SHARE, longest_wait, wait_text
from tfplace.report.html.elements import colours, section, swatch, text
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
    name = "<span class='device'>longest chain</span>"
    return _bar(explained, name, parts, sentence, " chain")


def _bar(
    explained: Explained,
    name: str,
    parts: Iterable[tuple[str, int, float, str]],
    sentence: str,
    kind: str = "",
) -> str:
    """A named stack of parts, one step wide, and the sentence that says the same.

    Args:
      explained: the step.
      name: HTML.
      parts: (CSS class, device whose colour it has or -1, seconds, what it is) each.
      sentence: for those who don't see the bar, and below it.
      kind: CSS class of the whole.
    """
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

"""The section of the page in which its script draws the schedule."""

from __future__ import annotations

from tfplace.report.explaining.explained import Explained
from tfplace.report.html.elements import NUM_COLOURS, data, section, swatch
from tfplace.report.html.timeline_data import timeline_data

BUTTONS = (
    ("in", "+", "zoom in (+)"),
    ("out", "−", "zoom out (−)"),
    ("left", "←", "earlier (left arrow)"),
    ("right", "→", "later (right arrow)"),
    ("all", "all", "the whole step (0)"),
    ("previous", "previous", "previous in this row (p)"),
    ("next", "next", "next in this row (n)"),
    ("cause", "what it waited for", "go to what the chosen op or transfer waited for (w)"),
)


OF_SHARDS = ("colour", "colours", "colour by shard or by device (c)")


def timeline(explained: Explained) -> str:
    """The section of the page; timeline.json holds the same schedule for other viewers."""
    content = timeline_data(explained)
    num_shards = content["shards"]
    buttons = "".join(
        f"<button type='button' data-do='{action}' title='{hint}'>{label}</button>"
        for action, label, hint in ((*BUTTONS, OF_SHARDS) if num_shards else BUTTONS)
    )
    return section(
        "schedule",
        "The predicted schedule",
        "<p>Devices first, then the links between them; idle times are tinted (an op elsewhere) or "
        "striped (a transfer)"
        f"{'' if num_shards else ' in the colour of the device that is waited for'}. Drag, "
        "or Ctrl + wheel; with the keyboard: Tab to the picture, arrows, <kbd>+</kbd> "
        "<kbd>−</kbd> <kbd>0</kbd>, <kbd>n</kbd> <kbd>p</kbd> along a row, <kbd>w</kbd> to what it "
        "waited for, <kbd>Enter</kbd> to look closely.</p>",
        _shard_legend(num_shards),
        f"<div class='tools'>{buttons}</div>",
        "<canvas id='timeline' tabindex='0' role='application' aria-label='the predicted schedule; "
        "up and down choose a row, n and p what runs in it' aria-describedby='timeline-told'>"
        "</canvas>",
        "<p id='timeline-told' class='told' role='status'>Choose anything in the picture.</p>",
        "<noscript><p>The picture needs JavaScript; timeline.json, beside this page, opens in "
        "Perfetto.</p></noscript>",
        data("timeline-data", content),
    )


def _shard_legend(num_shards: int) -> str:
    """Which colour which shard has; empty for a step that is whole."""
    if not num_shards:
        return ""
    shown = [(1 + shard % (NUM_COLOURS - 1), f"shard {shard}") for shard in range(num_shards)]
    items = "".join(f"<li>{swatch(*each)}</li>" for each in [*shown, (0, "whole")])
    return (
        "<p>Colours are the shards': ops of one colour compute one part of the batch; <kbd>c</kbd> "
        f"shows devices' colours instead.</p><ul class='legend'>{items}</ul>"
    )

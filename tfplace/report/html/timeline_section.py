"""The section of the page in which its script draws the schedule."""

from __future__ import annotations

from tfplace.report.explaining.explained import Explained
from tfplace.report.html.elements import data, section
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


def timeline(explained: Explained) -> str:
    """The section of the page; timeline.json holds the same schedule for other viewers."""
    buttons = "".join(
        f"<button type='button' data-do='{action}' title='{hint}'>{label}</button>"
        for action, label, hint in BUTTONS
    )
    return section(
        "schedule",
        "The predicted schedule",
        "<p>Devices first, then the links between them; idle times are tinted (an op elsewhere) or "
        "striped (a transfer) in the colour of the device that is waited for. Drag, "
        "or Ctrl + wheel; with the keyboard: Tab to the picture, arrows, <kbd>+</kbd> "
        "<kbd>−</kbd> <kbd>0</kbd>, <kbd>n</kbd> <kbd>p</kbd> along a row, <kbd>w</kbd> to what it "
        "waited for, <kbd>Enter</kbd> to look closely.</p>",
        f"<div class='tools'>{buttons}</div>",
        "<canvas id='timeline' tabindex='0' role='application' aria-label='the predicted schedule; "
        "up and down choose a row, n and p what runs in it' aria-describedby='timeline-told'>"
        "</canvas>",
        "<p id='timeline-told' class='told' role='status'>Choose anything in the picture.</p>",
        "<noscript><p>The picture needs JavaScript; timeline.json, beside this page, opens in "
        "Perfetto.</p></noscript>",
        data("timeline-data", timeline_data(explained)),
    )

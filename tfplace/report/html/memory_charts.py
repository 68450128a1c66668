"""Memory over the step, a small chart for each device, against its limit."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import FloatArray
from tfplace.report.explaining.explained import Explained
from tfplace.report.html.elements import colours, section, swatch, text
from tfplace.simulation.schedule import MemoryUse
from tfplace.units_text import bytes_text, seconds_text, share_text

WIDTH, HEIGHT = 360, 84
MAX_POINTS = 360
NEAR_LIMIT = 0.3
"""Share of the limit; of a peak below it the limit is told, but not drawn."""


def memory_charts(explained: Explained) -> str:
    """The section of the page; devices that hold nothing are left out."""
    problem, schedule = explained.problem, explained.schedule
    colour = colours(problem)
    limits = problem.usable_bytes()
    charts = [
        _chart(
            explained.names[device], colour[device], use, float(limits[device]), schedule.makespan
        )
        for device, use in enumerate(explained.placed.memory)
        if use.bytes.any()
    ]
    reserve = share_text(problem.memory_reserve)
    return section(
        "memory",
        "Memory over the step",
        "<p>The thin bar is the peak's share of the limit: a device's memory without the "
        f"{reserve} that is kept free. Below it, what is held over time; a dashed line is the "
        "limit.</p>",
        f"<div class='charts'>{''.join(charts)}</div>",
    )


def thinned(use: MemoryUse, makespan: float, num_points: int) -> tuple[FloatArray, FloatArray]:
    """(seconds, bytes) with at most `num_points` rows; each is the most of its part of the step."""
    if len(use.seconds) <= num_points:
        return use.seconds, use.bytes.astype(np.float64)
    bounds = np.linspace(0.0, makespan, num_points + 1)
    # What is held when a part begins counts in it, too.
    first = np.searchsorted(use.seconds, bounds[:-1], side="right") - 1
    last = np.searchsorted(use.seconds, bounds[1:], side="left")
    most = [use.bytes[a : max(b, a + 1)].max() for a, b in zip(first, last, strict=True)]
    return bounds[:-1], np.array(most, dtype=np.float64)


def _chart(label: str, colour: int, use: MemoryUse, limit: float, makespan: float) -> str:
    peak = float(use.bytes.max())
    shows_limit = peak >= NEAR_LIMIT * limit
    top = 1.08 * (max(limit, peak) if shows_limit else peak)
    seconds, held = thinned(use, makespan, MAX_POINTS)
    x = WIDTH * seconds / (makespan or 1.0)
    y = HEIGHT - HEIGHT * held / top
    path = [f"M0,{HEIGHT}"]
    for left, height in zip(x.tolist(), y.tolist(), strict=True):
        path.append(f"H{left:.1f}V{height:.1f}")
    path.append(f"H{WIDTH}V{HEIGHT}Z")
    line = HEIGHT - HEIGHT * limit / top
    mark = f"<path class='limit' d='M0,{line:.1f}H{WIDTH}'/>" if shows_limit else ""
    full = share_text(peak / limit) if limit and peak >= 0.005 * limit else "less than 1 %"
    told = f"peak {bytes_text(peak)}, {full} of the limit of {bytes_text(limit)}"
    share = min(100 * peak / max(limit, 1.0), 100.0)
    warning = " class='over'" if peak > limit else ""
    return (
        f"<figure><figcaption>{swatch(colour, label)} <span{warning}>{text(told)}</span>"
        f"</figcaption><div class='track gauge'><div class='d{colour}' style='width:{share:.1f}%'>"
        f"</div></div><svg viewBox='0 0 {WIDTH} {HEIGHT}' preserveAspectRatio='none' role='img' "
        f"aria-label='{text(f'{label}: {told}')}'>"
        f"<path class='area d{colour}' d='{''.join(path)}'/>{mark}</svg>"
        f"<div class='ends'><span>0</span><span>{seconds_text(makespan)}</span></div>"
        "</figure>"
    )

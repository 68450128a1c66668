"""The best step time so far against trials, a colour for each algorithm that found it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.counted import counted
from tfplace.report.html.elements import NUM_COLOURS, text
from tfplace.units_text import seconds_text

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 800, 230, 70, 16, 34


def best_so_far(search: Mapping[str, Any], bound_seconds: float | None) -> str:
    """An SVG; a sentence where nothing better was found than at the start.

    Args:
      search: the report's: `history` [[trial, seconds, best]...] and `stages` [{name, num_trials,
        seconds}...], where num_trials is how many there were at the stage's end, of all stages.
      bound_seconds: drawn as a line where it is near enough to matter.
    """
    points = [
        (int(trial), float(best))
        for trial, _, best in search["history"]
        if best is not None and math.isfinite(best)
    ]
    if len(points) < 2:
        return (
            "<p>There is no curve: the search had nothing to find, or found nothing better than "
            "what it began with.</p>"
        )
    stages = search.get("stages") or [{"name": "search", "num_trials": points[-1][0] + 1}]
    last = max(points[-1][0], 1)
    low, high = points[-1][1], points[0][1]
    if bound_seconds and bound_seconds > low - 1.5 * (high - low):
        low = bound_seconds
    span = (high - low) or high or 1.0
    low, high = low - 0.05 * span, high + 0.05 * span

    def at(trial: float, seconds: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * trial / last
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - seconds) / (high - low)
        return f"{x:.1f},{y:.1f}"

    lines = [_axes(at, low, high, last)]
    if bound_seconds and bound_seconds >= low:
        lines.append(
            f"<path class='bound' d='M{at(0, bound_seconds)} L{at(last, bound_seconds)}'/>"
        )
        lines.append(_label(at(last, bound_seconds), "bound", "end"))
    lines += [
        f"<path class='line d{_colour(number)}' d='{path}'/>"
        for number, path in enumerate(_paths(points, stages, at))
        if path
    ]
    first, best = (seconds_text(points[place][1]) for place in (0, -1))
    told = f"from {first} to {best} in {counted(last, 'trial')}"
    return (
        f"<div class='plot' tabindex='0'><svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
        f"aria-label='best step time so far: {told}'>"
        f"{''.join(lines)}</svg></div><ul class='legend'>{_legend(stages)}</ul>"
    )


def _paths(points: Sequence[tuple[int, float]], stages: Sequence[Any], at: Any) -> list[str]:
    """[stages]: the curve's steps, cut where one stage ends and the next begins."""
    trials = [trial for trial, _ in points]
    paths, since = [], points[0][0]
    for stage in stages:
        until = min(max(stage["num_trials"] - 1, since), trials[-1])
        first = bisect.bisect_right(trials, since) - 1
        best = points[first][1]
        path = [f"M{at(since, best)}"]
        for trial, seconds in points[first + 1 :]:
            if trial > until:
                break
            path += [f"L{at(trial, best)}", f"L{at(trial, seconds)}"]
            best = seconds
        paths.append(" ".join([*path, f"L{at(until, best)}"]) if until > since else "")
        since = until
    return paths


def _axes(at: Any, low: float, high: float, last: int) -> str:
    lines = [f"<path class='axis' d='M{at(0, high)} L{at(0, low)} L{at(last, low)}'/>"]
    for step in range(4):
        seconds = low + (high - low) * (step + 0.5) / 4
        lines.append(f"<path class='grid' d='M{at(0, seconds)} L{at(last, seconds)}'/>")
        lines.append(_label(at(0, seconds), seconds_text(seconds), "end", (-8, 4)))
    for share in (0, 0.5, 1):
        anchor = "start" if not share else "middle" if share < 1 else "end"
        tick = f"{round(share * last):,}" + (" trials" if share == 1 else "")
        lines.append(_label(at(share * last, low), tick, anchor, (0, 18)))
    return "".join(lines)


def _label(point: str, content: str, anchor: str, shift: tuple[int, int] = (0, -4)) -> str:
    x, y = (float(number) for number in point.split(","))
    return (
        f"<text x='{x + shift[0]:.1f}' y='{y + shift[1]:.1f}' text-anchor='{anchor}'>"
        f"{text(content)}</text>"
    )


def _legend(stages: Sequence[Mapping[str, Any]]) -> str:
    since, items = 0, []
    for number, stage in enumerate(stages):
        trials = stage["num_trials"] - since
        since = stage["num_trials"]
        told = f"{text(stage['name'])}, {counted(trials, 'trial')}"
        items.append(f"<li><i class='d{_colour(number)}'></i>{told}</li>")
    return "".join(items)


def _colour(number: int) -> int:
    return 1 + number % (NUM_COLOURS - 1)

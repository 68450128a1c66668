"""Charts: the best step time so far against trials, and memory over the step."""

import bisect
import math
from collections.abc import Callable, Sequence

import numpy as np

from graphs.counted import counted
from graphs.op_graph import FloatArray
from graphs.protos import Json, JsonObject
from tfplace.report.explaining.explained import Explained
from tfplace.report.html.elements import NUM_COLOURS, colours, section, swatch, text
from tfplace.simulation.schedule import MemoryUse
from tfplace.units_text import bytes_text, seconds_text, share_text

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 800, 230, 70, 16, 34


def best_so_far(search: JsonObject, bound_seconds: float | None) -> str:
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
        end = at(last, bound_seconds)
        lines.append(f"<path class='bound' d='M{at(0, bound_seconds)} L{end}'/>")
        lines.append(_label(end, "bound", "end"))
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


def _paths(
    points: Sequence[tuple[int, float]], stages: Sequence[Json], at: Callable[[float, float], str]
) -> list[str]:
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


def _axes(at: Callable[[float, float], str], low: float, high: float, last: int) -> str:
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


def _legend(stages: Sequence[JsonObject]) -> str:
    since, items = 0, []
    for number, stage in enumerate(stages):
        trials = stage["num_trials"] - since
        since = stage["num_trials"]
        told = f"{text(stage['name'])}, {counted(trials, 'trial')}"
        items.append(f"<li><i class='d{_colour(number)}'></i>{told}</li>")
    return "".join(items)


def _colour(number: int) -> int:
    return 1 + number % (NUM_COLOURS - 1)


MEMORY_WIDTH, MEMORY_HEIGHT = 360, 84
MAX_POINTS = 360
NEAR_LIMIT = 0.3
"""Share of the limit; of a peak below it the limit is told, but not drawn."""


def memory_charts(explained: Explained) -> str:
    """The section of the page; devices that hold nothing are left out."""
    problem, makespan = explained.problem, explained.schedule.makespan
    colour = colours(problem)
    limits = problem.usable_bytes()
    before, plan = explained.before, ""
    if before is not None:
        plan = " A thin line is what the step would hold without its memory plan."
        makespan = max(makespan, before.known_schedule().makespan)
    charts = [
        _chart(
            explained.names[device],
            colour[device],
            (use, *([] if before is None else [before.memory[device]])),
            float(limits[device]),
            makespan,
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
        f"limit.{plan}</p>",
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


def _chart(
    label: str, colour: int, uses: Sequence[MemoryUse], limit: float, makespan: float
) -> str:
    """What a device holds over a step; beside it, as a line, what it would without a plan."""
    peak = float(uses[0].bytes.max())
    most = max(float(use.bytes.max()) for use in uses)
    shows_limit = most >= NEAR_LIMIT * limit
    top = 1.08 * (max(limit, most) if shows_limit else most)
    areas = [_area(use, makespan, top) for use in uses]
    before = "".join(f"<path class='before' d='{area}'/>" for area in areas[1:])
    line = MEMORY_HEIGHT - MEMORY_HEIGHT * limit / top
    mark = f"<path class='limit' d='M0,{line:.1f}H{MEMORY_WIDTH}'/>" if shows_limit else ""
    full = share_text(peak / limit) if limit and peak >= 0.005 * limit else "less than 1 %"
    told = f"peak {bytes_text(peak)}, {full} of the limit of {bytes_text(limit)}"
    share = min(100 * peak / max(limit, 1.0), 100.0)
    warning = " class='over'" if peak > limit else ""
    return (
        f"<figure><figcaption>{swatch(colour, label)} <span{warning}>{text(told)}</span>"
        f"</figcaption><div class='track gauge'><div class='d{colour}' style='width:{share:.1f}%'>"
        f"</div></div><svg viewBox='0 0 {MEMORY_WIDTH} {MEMORY_HEIGHT}' "
        f"preserveAspectRatio='none' role='img' aria-label='{text(f'{label}: {told}')}'>"
        f"<path class='area d{colour}' d='{areas[0]}'/>{before}{mark}</svg>"
        f"<div class='ends'><span>0</span><span>{seconds_text(makespan)}</span></div>"
        "</figure>"
    )


def _area(use: MemoryUse, makespan: float, top: float) -> str:
    """The path of what is held over a step, closed along the axis."""
    seconds, held = thinned(use, makespan, MAX_POINTS)
    x = MEMORY_WIDTH * seconds / (makespan or 1.0)
    y = MEMORY_HEIGHT - MEMORY_HEIGHT * held / top
    points = zip(x.tolist(), y.tolist(), strict=True)
    path = "".join(f"H{left:.1f}V{height:.1f}" for left, height in points)
    return f"M0,{MEMORY_HEIGHT}{path}H{MEMORY_WIDTH}V{MEMORY_HEIGHT}Z"

"""The graph by group: a column for each device, time downwards, transfers as curves."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.group_graph import Group, GroupEdge, GroupGraph
from tfplace.report.explaining.waiting import BUSY_SHARE
from tfplace.report.html.elements import colours, section, text
from tfplace.units_text import seconds_text

COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, HEAD = 214, 40, 156, 32, 30
MAX_CURVES = 90
LABEL_LENGTH = 23
"""Characters that fit a box."""


def group_picture(explained: Explained) -> str:
    """The section: the picture, and what it leaves out."""
    graph = explained.groups
    if not graph.groups:
        return ""
    bystanders = {
        device
        for device, time in enumerate(explained.times)
        if time.computing_seconds < BUSY_SHARE * explained.schedule.makespan
    }
    used = sorted({g.device for g in graph.groups}, key=lambda d: (d in bystanders, d))
    column = {device: number for number, device in enumerate(used)}
    rows = row_of_group(graph)
    colour = colours(explained.problem)
    width, height = COLUMN * len(used), HEAD + ROW * (max(rows) + 1)
    heads = "".join(
        f"<text class='head' x='{COLUMN * number + COLUMN / 2:.0f}' y='16' text-anchor='middle'>"
        f"{text(explained.names[device])}</text>"
        for device, number in column.items()
    )
    places = [
        (COLUMN * column[group.device] + (COLUMN - BOX_WIDTH) / 2, float(HEAD + ROW * row))
        for group, row in zip(graph.groups, rows, strict=True)
    ]
    curves = _curves(graph, places, colour)
    boxes = "".join(
        _box(number, group, place, colour[group.device], explained.names[group.device])
        for number, (group, place) in enumerate(zip(graph.groups, places, strict=True))
    )
    return section(
        "graph",
        "The graph, by group",
        f"<p>{_sentence(explained)}</p>",
        "<div class='graph' tabindex='0' role='group' aria-label='groups; arrow keys go from one "
        f"to the next'><svg width='{width}' height='{height}' viewBox='0 0 {width} {height}'>"
        f"{heads}{curves}{boxes}</svg></div>"
        "<p id='graph-told' class='told' role='status'>Choose a group, with the mouse or with Tab "
        "and the arrow keys, to see what it exchanges with others.</p>",
    )


def row_of_group(graph: GroupGraph) -> list[int]:
    """[G]: a row for each group; time goes down, in each column and roughly across columns."""
    rows: list[int] = []
    free: collections.Counter[int] = collections.Counter()
    size = collections.Counter(group.device for group in graph.groups)
    longest = max(size.values())
    for number, group in enumerate(graph.groups):
        # Where it would lie if all groups were spread evenly over the longest column's rows, but
        # never so low that those after it had no room.
        even = number * longest // len(graph.groups)
        row = max(free[group.device], min(even, longest - size[group.device]))
        rows.append(row)
        free[group.device] = row + 1
        size[group.device] -= 1
    return rows


def shortened(label: str, length: int = LABEL_LENGTH) -> str:
    """A name that fits: its end says more than its beginning."""
    return label if len(label) <= length else "…" + label[-(length - 1) :]


def _sentence(explained: Explained) -> str:
    graph, num_ops = explained.groups, explained.problem.num_ops
    what = {
        "unit": "Each box is an op, or ops that must share a device.",
        "scope": f"{num_ops:,} ops in {len(graph.groups):,} groups: what lies of a name scope on "
        "one device; the scopes that take longest are opened.",
        "cut": f"{num_ops:,} ops in {len(graph.groups):,} groups of ops that exchange much.",
    }[graph.by]
    return text(
        f"{what} A column is a device, time goes down; the curves are the {MAX_CURVES} largest "
        "exchanges between devices, the wider the more bytes. A group that is chosen shows all of "
        "its own."
    )


def _curve(
    edge: GroupEdge, graph: GroupGraph, places: Sequence[tuple[float, float]], kind: str
) -> str:
    """From the side of a box to the side of another that faces it, or beside their column."""
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    y0, y1 = y0 + BOX_HEIGHT / 2, y1 + BOX_HEIGHT / 2
    if x0 == x1:
        x0 = x1 = x0 + BOX_WIDTH
        turn0 = turn1 = x0 + 22
    else:
        is_right = x1 > x0
        x0, x1 = (x0 + BOX_WIDTH, x1) if is_right else (x0, x1 + BOX_WIDTH)
        reach = (COLUMN - BOX_WIDTH) * (0.9 if is_right else -0.9)
        turn0, turn1 = x0 + reach, x1 - reach
    most = max((other.bytes for other in graph.edges), default=0) or 1
    width = 1.0 + 6.0 * math.sqrt(edge.bytes / most)
    return (
        f"<path class='edge {kind}' data-e='{edge.source},{edge.target},{edge.bytes}' "
        f"stroke-width='{width:.1f}' d='M{x0:.0f},{y0:.0f}C{turn0:.0f},{y0:.0f} "
        f"{turn1:.0f},{y1:.0f} {x1:.0f},{y1:.0f}'/>"
    )


def _curves(graph: GroupGraph, places: Sequence[tuple[float, float]], colour: Sequence[int]) -> str:
    """The largest on top; beyond MAX_CURVES, and inside a device, hidden until one is chosen."""
    lines = []
    for number, edge in enumerate(graph.edges):
        device = graph.groups[edge.source].device
        is_local = device == graph.groups[edge.target].device
        is_shown = number < MAX_CURVES and not is_local
        lines.append(
            _curve(edge, graph, places, f"d{colour[device]}" + ("" if is_shown else " minor"))
        )
    return "".join(reversed(lines))


def _box(number: int, group: Group, place: tuple[float, float], colour: int, device: str) -> str:
    label = group.label or "small ones"
    told = (
        f"{label}: {group.num_ops:,} {'op' if group.num_ops == 1 else 'ops'} on {device}, "
        f"{seconds_text(group.seconds)}"
    )
    x, y = place
    ops = "" if group.num_ops == 1 else f"{group.num_ops:,} ops · "
    return (
        f"<g class='group d{colour}' data-name='{text(f'{label} on {device}')}' tabindex='-1' "
        f"role='img' aria-label='{text(told)}' transform='translate({x:.0f},{y:.0f})'>"
        f"<title>{text(told)}</title>"
        f"<rect width='{BOX_WIDTH}' height='{BOX_HEIGHT}' rx='4'/>"
        f"<rect class='mark' width='5' height='{BOX_HEIGHT}' rx='2'/>"
        f"<text x='11' y='13'>{text(shortened(label))}</text>"
        f"<text class='small' x='11' y='26'>{ops}{seconds_text(group.seconds)}</text></g>"
    )

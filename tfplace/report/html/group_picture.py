"""The graph by group: a column for each device, time downwards, transfers as curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfplace.explaining.explained import Explained
from tfplace.explaining.group_graph import Group, GroupEdge, GroupGraph
from tfplace.report.html.elements import colours, section, text
from tfplace.report.units_text import seconds_text

COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, HEAD = 190, 44, 150, 32, 30
LABEL_LENGTH = 23
"""Characters that fit a box."""


def group_picture(explained: Explained) -> str:
    """The section: the picture, and what it leaves out."""
    graph = explained.groups
    if not graph.groups:
        return ""
    used = sorted({group.device for group in graph.groups})
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
    most = max((edge.bytes for edge in graph.edges), default=0)
    curves = "".join(
        _curve(edge, graph.groups, places, colour, most) for edge in reversed(graph.edges)
    )
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
    """[G]: a row for each group, so that time goes down in every column.

    A group lies below those of its device that come before it, and not above the groups of other
    devices that it gets tensors from.
    """
    rows: list[int] = []
    free: dict[int, int] = {}
    above: dict[int, list[int]] = {}
    for edge in graph.edges:
        if edge.source < edge.target:
            above.setdefault(edge.target, []).append(edge.source)
    for number, group in enumerate(graph.groups):
        least = max((rows[source] for source in above.get(number, [])), default=0)
        row = max(free.get(group.device, 0), least)
        rows.append(row)
        free[group.device] = row + 1
    return rows


def shortened(label: str, length: int = LABEL_LENGTH) -> str:
    """A name that fits: its end says more than its beginning."""
    return label if len(label) <= length else "…" + label[-(length - 1) :]


def _sentence(explained: Explained) -> str:
    graph, num_ops = explained.groups, explained.problem.num_ops
    left_out = graph.num_edges - len(graph.edges)
    what = (
        "Each box is an op, or ops that must share a device"
        if len(graph.groups) <= explained.problem.num_ops
        and all(g.num_ops <= 1 for g in graph.groups)
        else f"{num_ops:,} ops in {len(graph.groups):,} groups, each of ops that exchange much, "
        "named after the scope that holds most of its time"
    )
    rest = f"; {left_out:,} thinner ones are not drawn" if left_out > 0 else ""
    return text(
        f"{what}. A column is a device, time goes down. Coloured curves are transfers, the wider "
        f"the larger{rest}."
    )


def _curve(
    edge: GroupEdge,
    groups: Sequence[Group],
    places: Sequence[tuple[float, float]],
    colour: Sequence[int],
    most: int,
) -> str:
    source, target = groups[edge.source], groups[edge.target]
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    x0, x1, y0 = x0 + BOX_WIDTH / 2, x1 + BOX_WIDTH / 2, y0 + BOX_HEIGHT
    is_local = source.device == target.device
    width = 1.0 if is_local or not most else 1.0 + 5.0 * math.sqrt(edge.bytes / most)
    if is_local and 0 <= y1 - y0 <= ROW:
        path = f"M{x0:.0f},{y0:.0f}V{y1:.0f}"
    else:
        # Past boxes of the own column on its right, past others straight.
        bend = BOX_WIDTH / 2 + 30 if is_local else 0.0
        reach = max(abs(y1 - y0) / 2, 24.0)
        path = (
            f"M{x0:.0f},{y0:.0f}C{x0 + bend:.0f},{y0 + reach:.0f} "
            f"{x1 + bend:.0f},{y1 - reach:.0f} {x1:.0f},{y1:.0f}"
        )
    kind = "local" if is_local else f"d{colour[source.device]}"
    return (
        f"<path class='edge {kind}' data-e='{edge.source},{edge.target},{edge.bytes}' "
        f"stroke-width='{width:.1f}' d='{path}'/>"
    )


def _box(number: int, group: Group, place: tuple[float, float], colour: int, device: str) -> str:
    told = (
        f"{group.label}: {group.num_ops:,} {'op' if group.num_ops == 1 else 'ops'} on {device}, "
        f"{seconds_text(group.seconds)}"
    )
    x, y = place
    ops = "" if group.num_ops == 1 else f"{group.num_ops:,} ops · "
    return (
        f"<g class='group d{colour}' data-g='{number}' tabindex='-1' role='img' "
        f"aria-label='{text(told)}' transform='translate({x:.0f},{y:.0f})'>"
        f"<title>{text(told)}</title>"
        f"<rect width='{BOX_WIDTH}' height='{BOX_HEIGHT}' rx='4'/>"
        f"<rect class='mark' width='5' height='{BOX_HEIGHT}' rx='2'/>"
        f"<text x='11' y='13'>{text(shortened(group.label))}</text>"
        f"<text class='small' x='11' y='26'>{ops}{seconds_text(group.seconds)}</text></g>"
    )

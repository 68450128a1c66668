"""Learning curves of a bench as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphs.host.whole_file import write_whole
from tfplace.runs.bench.table import Row, place_of


def draw_curves(rows: Sequence[Row], path: str) -> None:
    """Best step time against trials, a panel for each model and cluster, as a PNG.

    A line for each seed, one color per algorithm; dotted is the best single device, dashed the
    lower bound. Where the cells had no limit of trials, the axis is seconds: what was equal.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    places = list(dict.fromkeys(map(place_of, rows)))
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    colors = {name: colormaps["tab10"](i % 10) for i, name in enumerate(algorithms)}
    columns = min(3, len(places))
    lines = math.ceil(len(places) / columns)
    figure = Figure(figsize=(5 * columns, 3.6 * lines + 0.5), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis, place in zip(axes.flat, places, strict=False):
        _panel(axis, [row for row in rows if place_of(row) == place], colors)
        axis.set_title(" on ".join(place))
    for axis in axes.flat[len(places) :]:
        axis.set_visible(False)
    legend: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        legend.update(zip(labels, handles, strict=True))
    if legend:
        figure.legend(
            list(legend.values()), list(legend), loc="outside upper center", ncols=3 * columns
        )
    write_whole(path, lambda file: figure.savefig(file, dpi=110, format="png"))


def _panel(axis: Any, rows: Sequence[Row], colors: dict[str, Any]) -> None:
    """Draws the rows of one model and cluster."""
    by_trials = all(row["max_trials"] is not None for row in rows)
    for row in rows:
        if row["history"]:
            reached = [point[0] + 1 if by_trials else point[1] for point in row["history"]]
            best = [point[2] for point in row["history"]]
            # A search that ends after one placement is a dot; its line would have no length.
            style = {"where": "post", "linewidth": 1.2, "marker": "." if len(set(best)) < 2 else ""}
            name = row["algorithm"]
            axis.step(reached, best, color=colors[name], label=name, **style)
    first = rows[0]
    if first["single_step_seconds"]:
        axis.axhline(first["single_step_seconds"], color="gray", linestyle=":", label="single")
    bounds = [row["lower_bound_seconds"] for row in rows if row["lower_bound_seconds"]]
    if bounds:
        axis.axhline(max(bounds), color="gray", linestyle="--", linewidth=0.8, label="bound")
    axis.set_xscale("log")
    axis.set(xlabel="trials" if by_trials else "seconds", ylabel="best step time (s)")

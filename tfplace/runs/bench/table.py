"""The rows of a bench as a Markdown table with geometric means, and as text."""

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.counted import counted
from graphs.host.whole_file import write_whole
from graphs.protos import JsonObject
from tfplace.runs.tables import markdown_table

COLUMNS = (
    "model", "cluster", "algorithm", "seed", "max_trials", "budget_seconds", "shards", "order",
    "memory_reserve", "trials", "infeasible_trials", "seconds", "step_seconds", "feasible",
    "single_step_seconds", "lower_bound_seconds", "error",
)  # fmt: skip
TEXT_WIDTH = 80

Row = JsonObject
Place = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class TableSummary:
    """Step times as shares of the best single device's, geometric means over seeds.

    Where no single device can hold the model, shares are of the best placement found by any
    algorithm.

    Attributes:
      algorithms: in the order of the rows.
      shares: {(model, cluster): {algorithm or "bound": share}}; an algorithm is missing where
        one of its seeds found nothing feasible.
      means: {algorithm: geometric mean} over the places where every algorithm found something.
      limits: what was equal, in words.
    """

    algorithms: Sequence[str]
    shares: Mapping[Place, Mapping[str, float]]
    means: Mapping[str, float]
    limits: str


def place_of(row: Row) -> Place:
    """Model and cluster of a row."""
    return row["model"], row["cluster"]


def summary(rows: Sequence[Row]) -> TableSummary:
    """The means that the tables show."""
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    places = list(dict.fromkeys(map(place_of, rows)))
    shares = {place: _shares([r for r in rows if place_of(r) == place]) for place in places}
    full = [share for share in shares.values() if all(a in share for a in algorithms)]
    means = {a: statistics.geometric_mean([s[a] for s in full]) for a in algorithms if full}
    return TableSummary(algorithms, shares, means, _limits(rows))


def as_markdown(table: TableSummary) -> str:
    """A line for each model and cluster, the best in bold, "-" where an algorithm found nothing."""
    numbers = [*table.algorithms, "bound"]
    lines = [
        [*place, *_cells(table.algorithms, shares), _cell(shares, "bound")]
        for place, shares in table.shares.items()
    ]
    if table.means:
        lines.append(["geometric mean", "", *_cells(table.algorithms, table.means), ""])
    head = f"Step time over the best single device's, geometric mean over seeds; {table.limits}."
    return f"{head}\n\n{markdown_table(['model', 'cluster', *numbers], numbers, lines)}"


def as_text(table: TableSummary) -> str:
    """The same for a terminal of 80 columns."""
    lines = textwrap.wrap(
        f"step time over the best single device's, geometric mean over seeds; {table.limits}",
        TEXT_WIDTH,
    )
    for place, shares in table.shares.items():
        lines += [" on ".join(place), *_wrapped([*table.algorithms, "bound"], shares)]
    if table.means and len(table.shares) > 1:
        lines += ["geometric mean", *_wrapped(table.algorithms, table.means)]
    return "\n".join(lines) + "\n"


def _wrapped(names: Sequence[str], shares: Mapping[str, float]) -> list[str]:
    words = [f"{name}\N{NO-BREAK SPACE}{_cell(shares, name)}" for name in names]
    indented = textwrap.wrap("  ".join(words), TEXT_WIDTH - 2, break_on_hyphens=False)
    return ["  " + line.replace("\N{NO-BREAK SPACE}", " ") for line in indented]


def _cells(algorithms: Sequence[str], shares: Mapping[str, float]) -> list[str]:
    """What each algorithm reached; the best in bold."""
    best = min((shares[a] for a in algorithms if a in shares), default=math.nan)
    cells = [(a, _cell(shares, a)) for a in algorithms]
    return [f"**{text}**" if shares.get(a) == best else text for a, text in cells]


def _cell(shares: Mapping[str, float], name: str) -> str:
    return f"{shares[name]:.3f}" if name in shares else "-"


def _shares(rows: Sequence[Row]) -> dict[str, float]:
    """{algorithm: geometric mean over its seeds of step time / single}; "bound" likewise."""
    singles = [row["single_step_seconds"] for row in rows if row["single_step_seconds"]]
    times = [row["step_seconds"] for row in rows if row["step_seconds"]]
    unit = min(singles or times, default=math.nan)
    shares = {}
    for algorithm in {row["algorithm"] for row in rows}:
        own = [row["step_seconds"] for row in rows if row["algorithm"] == algorithm]
        if all(own):
            shares[algorithm] = statistics.geometric_mean([seconds / unit for seconds in own])
    bounds = [row["lower_bound_seconds"] for row in rows if row["lower_bound_seconds"]]
    if bounds and not math.isnan(unit):
        shares["bound"] = max(bounds) / unit
    return shares


def _limits(rows: Sequence[Row]) -> str:
    """ "1,000 trials or 60 s each, seeds 1, 2"; of all rows, which share their limits."""
    trials, seconds = rows[0]["max_trials"], rows[0]["budget_seconds"]
    limit = f"{seconds:g} s" if trials is None else f"{counted(trials, 'trial')} or {seconds:g} s"
    seeds = sorted({row["seed"] for row in rows})
    return f"at most {limit} each, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


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

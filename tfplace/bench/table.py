"""The rows of a bench as CSV, as a Markdown table with geometric means, and as curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (
    "model", "cluster", "algorithm", "seed", "max_trials", "budget_seconds", "trials",
    "infeasible_trials", "seconds", "step_seconds", "feasible", "single_step_seconds",
    "lower_bound_seconds", "error",
)  # fmt: skip

Row = Mapping[str, Any]


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each row, without its history."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log)); nan where there are none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def as_markdown(rows: Sequence[Row]) -> str:
    """Step time as a share of the best single device's, mean over seeds; best of a line in bold.

    Where no single device can hold the model, shares are of the best placement found by any
    algorithm. A cell in which a seed found nothing feasible is "-". The last line is the
    geometric mean over the lines in which every algorithm found something.
    """
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    places = list(dict.fromkeys((row["model"], row["cluster"]) for row in rows))
    shares = {place: _shares([r for r in rows if _place(r) == place]) for place in places}
    lines = [
        "| model | cluster | " + " | ".join(algorithms) + " | bound |",
        "|---|---|" + "---:|" * (len(algorithms) + 1),
    ]
    for place in places:
        found = shares[place]
        best = min((found[a] for a in algorithms if a in found), default=math.nan)
        cells = [_cell(found.get(a), best) for a in algorithms]
        bound = _cell(found.get("bound"), math.nan)
        lines.append(f"| {place[0]} | {place[1]} | {' | '.join(cells)} | {bound} |")
    full = [found for found in shares.values() if all(a in found for a in algorithms)]
    means = [geometric_mean([found[a] for found in full]) for a in algorithms]
    best = min((mean for mean in means if not math.isnan(mean)), default=math.nan)
    cells = [_cell(None if math.isnan(mean) else mean, best) for mean in means]
    lines.append(f"| geometric mean | {len(full)} lines | {' | '.join(cells)} | |")
    return "\n".join(lines) + "\n"


def _place(row: Row) -> tuple[str, str]:
    return row["model"], row["cluster"]


def _shares(rows: Sequence[Row]) -> dict[str, float]:
    """{algorithm: geometric mean over its seeds of step time / single}; "bound" likewise."""
    singles = [row["single_step_seconds"] for row in rows if row["single_step_seconds"]]
    times = [row["step_seconds"] for row in rows if row["step_seconds"]]
    unit = min(singles or times, default=math.nan)
    shares = {}
    for algorithm in {row["algorithm"] for row in rows}:
        own = [row["step_seconds"] for row in rows if row["algorithm"] == algorithm]
        if all(own):
            shares[algorithm] = geometric_mean([seconds / unit for seconds in own])
    bounds = [row["lower_bound_seconds"] for row in rows if row["lower_bound_seconds"]]
    if bounds and not math.isnan(unit):
        shares["bound"] = max(bounds) / unit
    return shares


def _cell(share: float | None, best: float) -> str:
    if share is None:
        return "-"
    return f"**{share:.3f}**" if share <= best * (1 + 1e-9) else f"{share:.3f}"


def draw_curves(rows: Sequence[Row], path: str) -> None:
    """Best step time against trials, a panel for each model and cluster, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    places = list(dict.fromkeys(_place(row) for row in rows))
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    colors = dict(zip(algorithms, pyplot.cm.tab20.colors * 2, strict=False))  # type: ignore[attr-defined]
    columns = min(3, len(places))
    lines = math.ceil(len(places) / columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(5 * columns, 3.6 * lines), squeeze=False, layout="constrained"
    )
    for axis, place in zip(axes.flat, places, strict=False):
        for row in (row for row in rows if _place(row) == place and row["history"]):
            trials = [point[0] + 1 for point in row["history"]]
            best = [point[2] for point in row["history"]]
            first = row["seed"] == min(r["seed"] for r in rows)
            label = row["algorithm"] if first else None
            axis.step(trials, best, where="post", color=colors[row["algorithm"]], label=label)
        single = next((r["single_step_seconds"] for r in rows if _place(r) == place), None)
        if single:
            axis.axhline(single, color="gray", linestyle=":", label="single")
        axis.set(title=f"{place[0]} on {place[1]}", xlabel="trials", ylabel="best step time (s)")
        axis.set_xscale("log")
    for axis in axes.flat[len(places) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)

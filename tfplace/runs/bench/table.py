"""The rows of a bench as CSV, as a Markdown table with geometric means, and as text."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tfplace.runs.csv_text import csv_text

COLUMNS = (
    "model", "cluster", "algorithm", "seed", "max_trials", "budget_seconds", "trials",
    "infeasible_trials", "seconds", "step_seconds", "feasible", "single_step_seconds",
    "lower_bound_seconds", "error",
)  # fmt: skip
TEXT_WIDTH = 80

Row = Mapping[str, Any]
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


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each row, without its history."""
    return csv_text(COLUMNS, rows)


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log)); nan where there are none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: Sequence[Row]) -> TableSummary:
    """The means that the tables show."""
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    places = list(dict.fromkeys(map(place_of, rows)))
    shares = {place: _shares([r for r in rows if place_of(r) == place]) for place in places}
    full = [found for found in shares.values() if all(a in found for a in algorithms)]
    means = {a: geometric_mean([found[a] for found in full]) for a in algorithms if full}
    return TableSummary(algorithms, shares, means, _limits(rows))


def as_markdown(found: TableSummary) -> str:
    """A line for each model and cluster, the best in bold, "-" where an algorithm found nothing."""
    header = ["model", "cluster", *found.algorithms, "bound"]
    lines = [
        f"Step time over the best single device's, geometric mean over seeds; {found.limits}.",
        "",
        _line(header),
        "|---|---|" + "---:|" * (len(header) - 2),
    ]
    for place, shares in found.shares.items():
        lines.append(_line([*place, *_cells(found.algorithms, shares), _cell(shares, "bound")]))
    if found.means:
        lines.append(_line(["geometric mean", "", *_cells(found.algorithms, found.means), ""]))
    return "\n".join(lines) + "\n"


def as_text(found: TableSummary) -> str:
    """The same for a terminal of 80 columns."""
    lines = textwrap.wrap(
        f"step time over the best single device's, geometric mean over seeds; {found.limits}",
        TEXT_WIDTH,
    )
    for place, shares in found.shares.items():
        lines += [" on ".join(place), *_wrapped([*found.algorithms, "bound"], shares)]
    if found.means and len(found.shares) > 1:
        lines += ["geometric mean", *_wrapped(found.algorithms, found.means)]
    return "\n".join(lines) + "\n"


def _wrapped(names: Sequence[str], shares: Mapping[str, float]) -> list[str]:
    words = [f"{name}\N{NO-BREAK SPACE}{_cell(shares, name)}" for name in names]
    indented = textwrap.wrap("  ".join(words), TEXT_WIDTH - 2, break_on_hyphens=False)
    return ["  " + line.replace("\N{NO-BREAK SPACE}", " ") for line in indented]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
            shares[algorithm] = geometric_mean([seconds / unit for seconds in own])
    bounds = [row["lower_bound_seconds"] for row in rows if row["lower_bound_seconds"]]
    if bounds and not math.isnan(unit):
        shares["bound"] = max(bounds) / unit
    return shares


def _limits(rows: Sequence[Row]) -> str:
    """ "1,000 trials or 60 s each, seeds 1, 2"; of all rows, which share their limits."""
    trials, seconds = rows[0]["max_trials"], rows[0]["budget_seconds"]
    limit = f"{seconds:g} s" if trials is None else f"{trials:,} trials or {seconds:g} s"
    seeds = sorted({row["seed"] for row in rows})
    return f"at most {limit} each, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"

"""The page's table of what `suite.py` has run: shares of the best single device's step time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tfplace.preparing.options import AUTO

ONE_SHOT = ("given", "single", "expert", "topological", "etf", "sct", "heft", "metis")
"""Algorithms that decide once."""
SEARCHED = ("local_search", "colocrl", "hierarchical", "spotlight", "post", "placeto", "auto")
TITLES = {
    "topological": "m-TOPO", "etf": "m-ETF", "sct": "m-SCT", "heft": "HEFT",
    "auto": "auto, unsplit",
}  # fmt: skip
DATA_PARALLEL, SPLIT = "data parallel", "auto"
OVER = "auto over best other"

Cell = Mapping[str, Any]
Place = tuple[str, str, float]


def table_of(
    cells: Sequence[Cell], origin: Mapping[str, Any], bounds: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The result file: a row for each graph, cluster and budget, then geometric means, and all
    cells.

    Args:
      cells: rows of `tfplace bench`, each with its commit and machine.
      origin: of the table.
      bounds: what `bound_of` has found, of each pair of graph and cluster at most once.
    """
    known_bounds = {
        (each["model"], each["cluster"]): each["lower_bound_seconds"] for each in bounds
    }
    methods = [*(TITLES.get(name, name) for name in (*ONE_SHOT, *SEARCHED)), DATA_PARALLEL, SPLIT]
    places = list(dict.fromkeys(map(_place, cells)))
    shares = [_shares([cell for cell in cells if _place(cell) == place]) for place in places]
    over = [_over_best_other(share) for share in shares]
    rows = [
        [*place, *(share.get(name) for name in methods), ratio, *_rest(cells, place, known_bounds)]
        for place, share, ratio in zip(places, shares, over, strict=True)
    ]
    means = [_mean([share.get(name) for share in shares]) for name in methods]
    if len(rows) > 1:
        known = _mean([ratio for ratio in over if ratio])
        rows.append(["geometric mean", "", None, *means, known, "", None, None, "", ""])
    numbers = [{"name": name, "format": ".3f"} for name in methods]
    return {
        "command": "python -m tests.tables.suite",
        **origin,
        "note": "step time over the best single device's, simulated; geometric mean over seeds, "
        "and below over all rows where each of them has one, of the last share over those that do",
        "bold": methods,
        "columns": [
            {"name": "graph"}, {"name": "cluster"}, {"name": "budget, s", "format": "g"}, *numbers,
            {"name": OVER, "format": ".3f"},
            {"name": "shards", "align": "right"}, {"name": "bound", "format": ".3f"},
            {"name": "gap, %", "format": ".0f"}, {"name": "seeds"}, {"name": "commit, machine"},
        ],
        "rows": rows,
        "bounds": list(bounds),
        "cells": list(cells),
    }  # fmt: skip


def _place(cell: Cell) -> Place:
    return cell["model"], cell["cluster"], cell["budget_seconds"]


def _title(cell: Cell) -> str:
    if cell["shards"] == AUTO:
        return SPLIT
    algorithm: str = cell["algorithm"]
    return TITLES.get(algorithm, algorithm)


def _shares(cells: Sequence[Cell]) -> dict[str, float]:
    """{method: geometric mean over seeds of its share}, without those that found nothing."""
    singles = [cell["single_step_seconds"] for cell in cells if cell.get("single_step_seconds")]
    times: dict[str, list[float | None]] = {}
    for cell in cells:
        times.setdefault(_title(cell), []).append(cell.get("step_seconds"))
        if cell["shards"] == AUTO:
            seconds = cell.get("data_parallel_step_seconds")
            times.setdefault(DATA_PARALLEL, []).append(seconds)
    found = [seconds for each in times.values() for seconds in each if seconds]
    unit = min(singles or found, default=math.nan)
    return {
        name: statistics.geometric_mean([seconds / unit for seconds in each if seconds])
        for name, each in times.items()
        if all(each)
    }


def _over_best_other(shares: Mapping[str, float]) -> float | None:
    """What `auto` takes over the best of all other columns that the row has."""
    others = [share for name, share in shares.items() if name != SPLIT]
    return shares[SPLIT] / min(others) if SPLIT in shares and others else None


def _rest(
    cells: Sequence[Cell], place: Place, known_bounds: Mapping[tuple[str, str], float]
) -> list[Any]:
    """Shards found, bound, gap, seeds, and what made the row.

    The bound is the one known for any number of shards; else what the cells themselves have.
    """
    own = [cell for cell in cells if _place(cell) == place]
    split = [cell for cell in own if cell["shards"] == AUTO and cell.get("step_seconds")]
    shards = "/".join(dict.fromkeys(str(cell["found_shards"]) for cell in split))
    bounds = [cell["lower_bound_seconds"] for cell in split if cell.get("lower_bound_seconds")]
    if (known := known_bounds.get(place[:2])) is not None and split:
        bounds = [known]
    singles = [cell["single_step_seconds"] for cell in own if cell.get("single_step_seconds")]
    bound = gap = None
    if bounds:
        best = statistics.geometric_mean([cell["step_seconds"] for cell in split])
        bound = max(bounds) / min(singles) if singles else None
        gap = 100.0 * (best / max(bounds) - 1.0)
    seeds = sorted({cell["seed"] for cell in own})
    made = dict.fromkeys(f"{cell['commit']}, {cell['machine']}" for cell in own)
    return [shards, bound, gap, ", ".join(map(str, seeds)), "; ".join(made)]


def _mean(values: Sequence[float | None]) -> float | None:
    if not values or not all(values):
        return None
    return statistics.geometric_mean([value for value in values if value])

"""The pages' tables of what `suite.py` has run: shares of the best single device's step time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfplace.preparing.options import AUTO

ONE_SHOT = ("given", "single", "expert", "topological", "etf", "sct", "heft", "metis")
"""Algorithms that decide once."""
LEARNED = ("random", "colocrl", "hierarchical", "spotlight", "post", "placeto")
"""The published systems, and what they are to beat."""
TITLES = {
    "topological": "m-TOPO", "etf": "m-ETF", "sct": "m-SCT", "heft": "HEFT",
    "auto": "auto, unsplit",
}  # fmt: skip
DATA_PARALLEL, SPLIT = "data parallel", "auto"
OVER = "auto over best other"

Cell = Mapping[str, Any]


def suite_table(cells: Sequence[Cell], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The result file of all algorithms: a row for each graph and cluster, and all cells.

    Args:
      cells: rows of `tfplace bench`, each with its commit and machine.
      origin: of the table.
    """
    names = (*ONE_SHOT, "local_search", "auto")
    methods = [*(TITLES.get(name, name) for name in names), DATA_PARALLEL, SPLIT]
    table = _table(cells, origin, methods, [OVER, "shards", "bound", "gap, %"], _found)
    return {**table, "command": "python -m tests.tables.suite"}


def learned_table(cells: Sequence[Cell], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The result file of the published systems, likewise."""
    table = _table(cells, origin, LEARNED, ["bound"], _bound)
    return {**table, "command": "python -m tests.tables.suite --learned"}


def _table(
    cells: Sequence[Cell],
    origin: Mapping[str, Any],
    methods: Sequence[str],
    others: Sequence[str],
    found: Callable[[Sequence[Cell], Mapping[str, float]], list[Any]],
) -> dict[str, Any]:
    rows, all_shares, last = [], [], []
    for model, cluster, trials in dict.fromkeys(map(_place, cells)):
        own = [cell for cell in cells if _place(cell) == (model, cluster, trials)]
        shares = _shares(own)
        all_shares.append(shares)
        last.append(found(own, shares))
        seeds = ", ".join(str(seed) for seed in sorted({cell["seed"] for cell in own}))
        made = ", ".join(dict.fromkeys(cell["commit"] for cell in own))
        known = [shares.get(name) for name in methods]
        rows.append([model, cluster, trials, *known, *last[-1], seeds, made])
    if len(rows) > 1:
        means = [_mean([shares.get(name) for shares in all_shares]) for name in methods]
        over = _mean([each[0] for each in last]) if others[0] == OVER else None
        rest = [over, *(None for _ in others[1:])]
        rows.append(["geometric mean", "", None, *means, *rest, "", ""])
    formats = {OVER: ".3f", "bound": ".3f", "gap, %": ".0f"}
    return {
        **origin,
        "note": "step time over the best single device's, simulated; geometric mean over seeds, "
        "and below over all rows where each of them has one",
        "bold": list(methods),
        "columns": [
            {"name": "graph"}, {"name": "cluster"}, {"name": "trials", "format": ","},
            *({"name": name, "format": ".3f"} for name in methods),
            *({"name": name, "format": formats.get(name, ""), "align": "right"} for name in others),
            {"name": "seeds"}, {"name": "commit"},
        ],
        "rows": rows,
        "cells": list(cells),
    }  # fmt: skip


def _place(cell: Cell) -> tuple[str, str, int]:
    return cell["model"], cell["cluster"], cell["max_trials"]


def _title(cell: Cell) -> str:
    if cell["shards"] == AUTO:
        return SPLIT
    algorithm: str = cell["algorithm"]
    return TITLES.get(algorithm, algorithm)


def _single_seconds(cells: Sequence[Cell]) -> float:
    singles = [cell["single_step_seconds"] for cell in cells if cell.get("single_step_seconds")]
    found = [cell["step_seconds"] for cell in cells if cell.get("step_seconds")]
    return min(singles or found, default=math.nan)


def _shares(cells: Sequence[Cell]) -> dict[str, float]:
    """{method: geometric mean over seeds of its share}, without those that found nothing."""
    times: dict[str, list[float | None]] = {}
    for cell in cells:
        times.setdefault(_title(cell), []).append(cell.get("step_seconds"))
        if cell["shards"] == AUTO:
            seconds = cell.get("data_parallel_step_seconds")
            times.setdefault(DATA_PARALLEL, []).append(seconds)
    unit = _single_seconds(cells)
    return {
        name: statistics.geometric_mean([seconds / unit for seconds in each if seconds])
        for name, each in times.items()
        if all(each)
    }


def _found(cells: Sequence[Cell], shares: Mapping[str, float]) -> list[Any]:
    """What `auto` takes over the best other column, its shards, the bound, and auto's gap above."""
    others = [share for name, share in shares.items() if name != SPLIT]
    over = shares[SPLIT] / min(others) if SPLIT in shares and others else None
    split = [cell for cell in cells if cell["shards"] == AUTO and cell.get("step_seconds")]
    shards = "/".join(dict.fromkeys(_number(cell) for cell in split))
    bound = _bound(split or cells, shares)
    gap = 100.0 * (shares[SPLIT] / bound[0] - 1.0) if split and bound[0] else None
    return [over, shards, *bound, gap]


def _number(cell: Cell) -> str:
    of_weights = " of weights" if cell["found_cut"] == "weights" else ""
    return f"{cell['found_shards']}{of_weights}"


def _bound(cells: Sequence[Cell], shares: Mapping[str, float]) -> list[Any]:
    """The highest bound that a cell knows, over the best single device."""
    known = [cell["lower_bound_seconds"] for cell in cells if cell.get("lower_bound_seconds")]
    return [max(known) / _single_seconds(cells) if known else None]


def _mean(values: Sequence[float | None]) -> float | None:
    if not values or not all(values):
        return None
    return statistics.geometric_mean([value for value in values if value])

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
Place = tuple[str, str, int]


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
    table = _table(cells, origin, ["expert", "metis", *LEARNED], ["bound"], _bound)
    return {**table, "command": "python -m tests.tables.suite --learned"}


def claims_table(cells: Sequence[Cell], origin: Mapping[str, Any]) -> dict[str, Any]:
    """What the systems' papers say beside what their cells say, at equal numbers of trials."""
    step, reached = dict[tuple[Place, int, str], float](), dict[tuple[Place, int, str], list[Any]]()
    for cell in cells:
        if cell["step_seconds"]:
            key = _place(cell), cell["seed"], cell["algorithm"]
            step[key], reached[key] = cell["step_seconds"], cell["history"]
    runs = sorted({key[:2] for key in step})

    def over(one: str, other: str, graphs: str = "") -> list[float]:
        pairs = (((*run, one), (*run, other)) for run in runs if graphs in run[0][0])
        return [step[a] / step[b] for a, b in pairs if a in step and b in step]

    def placements(other: str) -> list[float]:
        """Trials that `other` took to its best, over those in which Placeto had as good a step."""
        found = []
        for run in runs:
            own, theirs = reached.get((*run, "placeto"), []), reached.get((*run, other), [])
            first = [trial for trial, seconds in own if theirs and seconds <= theirs[-1][1]]
            found += [(theirs[-1][0] + 1) / (first[0] + 1)] if first else []
        return found

    alone = [
        step[*run, "hierarchical"] / min(step[run[0], 1, name] for name in ("expert", "metis"))
        for run in runs
        if run[0][:2] == ("nmt:num_layers=2", "k80x2") and (*run, "hierarchical") in step
    ]
    rows = [
        [
            "Spotlight's step over ColocRL's, CIFAR-10",
            "60.9 %",
            *_ratios(over("spotlight", "colocrl", "cifar10")),
        ],
        ["the same, all graphs", "", *_ratios(over("spotlight", "colocrl"))],
        *(
            ["Post's step over " + title, "36.3 % at best", *_ratios(over("post", name))]
            for name, title in (
                ("colocrl", "ColocRL's"),
                ("hierarchical", "HDP's"),
                ("spotlight", "Spotlight's"),
            )
        ),
        [
            "HDP's step on NMT-2, 2 GPUs, over the better of expert and min-cut",
            "39.4 %",
            *_ratios(alone),
        ],
        *(
            [
                f"placements of {title} over Placeto's to as good a step",
                "6.1 at best",
                *_ratios(placements(name), 1.0, "x"),
            ]
            for name, title in (("colocrl", "ColocRL"), ("spotlight", "Spotlight"))
        ),
    ]
    return {
        "command": "python -m tests.tables.suite --learned",
        **origin,
        "note": "each pair of runs has graph, cluster, seed and number of trials in common; "
        "placements: of the runs in which Placeto gets there",
        "columns": [
            {"name": "claim"},
            {"name": "published"},
            *(
                {"name": name, "align": "right"}
                for name in ("geometric mean", "least", "most", "pairs")
            ),
        ],
        "rows": rows,
    }


def _ratios(values: Sequence[float], scale: float = 100.0, unit: str = " %") -> list[Any]:
    if not values:
        return ["", "", "", 0]
    three = statistics.geometric_mean(values), min(values), max(values)
    return [*(f"{scale * each:.1f}{unit}" for each in three), len(values)]


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


def _place(cell: Cell) -> Place:
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
    """The highest bound that a cell knows, over the best single device; none for pieces of weights,
    since it holds for shards."""
    by_batch = [cell for cell in cells if cell.get("found_cut") != "weights"]
    known = [cell["lower_bound_seconds"] for cell in by_batch if cell.get("lower_bound_seconds")]
    return [max(known) / _single_seconds(cells) if known else None]


def _mean(values: Sequence[float | None]) -> float | None:
    if not values or not all(values):
        return None
    return statistics.geometric_mean([value for value in values if value])

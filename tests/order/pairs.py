"""Placements found with an order and without, in the same time: predicted steps side by side."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.order.running import tfplace
from tests.tables.rewrite_docs import ROOT, origin_of

MODELS = ("rnnlm", "nmt:num_layers=2", "nmt:num_layers=4", "inception_v3", "transformer")
CLUSTERS = ("k80x2", "k80x4")
ORDERS = ("none", "edges")
WORDS = ("--algorithms=auto", "--seeds=1", "--shards=auto", "--budget_seconds=60", "--parallel=1")

Cell = dict[str, Any]


def bench(model: str, cluster: str, order: str) -> Cell:
    """The row of one `tfplace bench`, with the code and machine that made it."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "bench.json")
        where = (f"--models={model}", f"--clusters={cluster}", f"--order={order}")
        done = tfplace("bench", *where, *WORDS, f"--output={output}")
        if not output.exists():
            raise RuntimeError(f"running a bench of {model} on {cluster}: {done.stderr}")
        row = json.loads(output.read_text(encoding="utf-8"))[0]
    origin = origin_of(ROOT)
    return {**row, "commit": origin["commit"], "machine": origin["machine"]}


def run(
    models: Sequence[str],
    clusters: Sequence[str],
    again: bool,
    known: Sequence[Cell],
    keep: Callable[[Sequence[Cell]], None],
) -> None:
    """Runs the cells that are missing, both of a pair one after the other.

    Args:
      models, clusters: which pairs.
      again: also those that other code has made.
      known: cells of earlier runs.
      keep: is given all cells whenever there is a new one.
    """
    commit, cells = origin_of(ROOT)["commit"], list(known)
    for key in itertools.product(models, clusters, ORDERS):
        same = [each for each in cells if _key(each) == key and each.get("step_seconds")]
        if same and not (again and same[0]["commit"] != commit):
            continue
        print(" ".join(key), flush=True)
        cells = [each for each in cells if _key(each) != key] + [bench(*key)]
        keep(cells)


def table_of(cells: Sequence[Cell]) -> dict[str, Any]:
    """The columns and rows of the pairs that are whole, their geometric mean, and all cells."""
    by_key = {_key(cell): cell for cell in cells if cell.get("step_seconds")}
    rows: list[list[Any]] = []
    for model, cluster in itertools.product(MODELS, CLUSTERS):
        pair = [by_key.get((model, cluster, order)) for order in ORDERS]
        if pair[0] is not None and pair[1] is not None:
            rows.append(_row(model, cluster, pair[0], pair[1]))
    if rows:
        mean = 100.0 * (statistics.geometric_mean([1.0 + row[6] / 100.0 for row in rows]) - 1.0)
        rows.append(["geometric mean", "", None, None, "", "", mean, ""])
    return {
        "note": "predicted milliseconds of the step, and trials before the search in order",
        "columns": [
            {"name": "graph"}, {"name": "cluster"}, {"name": "without", "format": ".1f"},
            {"name": "in order", "format": ".1f"}, {"name": "shards", "align": "right"},
            {"name": "trials", "align": "right"}, {"name": "change, %", "format": "+.1f"},
            {"name": "commits"},
        ],
        "rows": rows,
        "cells": list(cells),
    }  # fmt: skip


def _row(model: str, cluster: str, without: Cell, ordered: Cell) -> list[Any]:
    steps = [1e3 * each["step_seconds"] for each in (without, ordered)]
    shards, trials = (
        ", ".join(f"{each[name]:,}" for each in (without, ordered))
        for name in ("found_shards", "trials")
    )
    commits = dict.fromkeys(each["commit"] for each in (without, ordered))
    change = 100.0 * (steps[1] / steps[0] - 1.0)
    return [model, cluster, *steps, shards, trials, change, ", ".join(commits)]


def _key(cell: Cell) -> tuple[str, str, str]:
    return cell["model"], cell["cluster"], cell["order"]

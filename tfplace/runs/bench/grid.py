"""What a bench runs: its cells, and which of them are done."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.errors import OutputError, UsageError
from tfplace.output_paths import write_file

KEY = ("model", "cluster", "algorithm", "seed")
LIMIT_KEY = ("max_trials", "budget_seconds")


@dataclasses.dataclass(frozen=True)
class Grid:
    """A bench.

    Attributes:
      models: names of benchmark graphs, "nmt:num_layers=4", or paths.
      clusters, algorithms, seeds: what each model is run with.
      max_trials: evaluated placements of each cell; None for no limit.
      budget_seconds: wall time of each cell's search.
      memory_reserve: fraction of memory kept free.
      parallel: cells at a time.
    """

    models: Sequence[str]
    clusters: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[int]
    max_trials: int | None
    budget_seconds: float
    memory_reserve: float = 0.1
    parallel: int = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """One search: a model on a cluster by an algorithm with a seed."""

    model: str
    cluster: str
    algorithm: str
    seed: int

    def matches(self, row: Mapping[str, Any], grid: Grid) -> bool:
        """Whether a row is this cell's, run under the same limits."""
        same = all(row.get(key) == getattr(self, key) for key in KEY)
        return same and all(row.get(key) == getattr(grid, key) for key in LIMIT_KEY)


def cells_of(grid: Grid) -> list[Cell]:
    """All cells, those of one model and cluster together."""
    return [
        Cell(*parts)
        for parts in itertools.product(grid.models, grid.clusters, grid.algorithms, grid.seeds)
    ]


def read_rows(path: str) -> list[dict[str, Any]]:
    """Rows of an earlier run; none where there is no file.

    Raises:
      OutputError: the file is something else.
    """
    if not os.path.exists(path):
        return []
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(
            f"going on with the bench in {path}: it can't be read as JSON ({error}); give "
            "another --output, or --overwrite"
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise OutputError(
            f"going on with the bench in {path}: found no list of rows; give another --output, "
            "or --overwrite"
        )
    return rows


def write_rows(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes all rows, whole or not at all."""
    text = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    write_file(path, f"[\n{text}\n]\n".encode(), overwrite=True)


def split_names(text: str, flag: str) -> list[str]:
    """ "A,B:x=1,y=2,C" -> ["A", "B:x=1,y=2", "C"]: an option belongs to the name before it.

    Raises:
      UsageError: nothing is named.
    """
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if names and "=" in part and ":" not in part and ":" in names[-1]:
            names[-1] += f",{part}"
        elif part:
            names.append(part)
    if not names:
        raise UsageError(f"reading {flag}: found nothing; wanted names with commas between them")
    return names


def whole_numbers(words: Iterable[str], flag: str) -> list[int]:
    """Seeds, as numbers.

    Raises:
      UsageError: one of them is no number of at least 0.
    """
    numbers = []
    for word in words:
        if not word.isdigit():
            raise UsageError(f"reading {flag}: {word!r} is no whole number; wanted 1,2,3")
        numbers.append(int(word))
    return numbers

"""What a bench runs: its cells, and which of them are done."""

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.errors import OutputError
from tfplace.output_paths import write_file


@dataclasses.dataclass(frozen=True)
class Cell:
    """One search: a model on a cluster by an algorithm with a seed, and its limits.

    Its fields are the first columns of its row: by them a row of an earlier run is known.
    """

    model: str
    cluster: str
    algorithm: str
    seed: int
    max_trials: int | None
    budget_seconds: float
    shards: int = 1
    order: str = "none"

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is this cell's, run under the same limits."""
        known = {"shards": 1, "order": "none", **row}  # rows of an older bench say nothing of them
        return all(known.get(key) == value for key, value in vars(self).items())


@dataclasses.dataclass(frozen=True)
class Grid:
    """A bench.

    Attributes:
      models: names of benchmark graphs, "nmt:num_layers=4", or paths.
      clusters: on which each model is placed.
      algorithms: that place it.
      seeds: with which each algorithm runs.
      max_trials: evaluated placements of each cell; None for no limit.
      budget_seconds: wall time of each cell's search.
      memory_reserve: fraction of memory kept free.
      parallel: cells at a time.
      shards: into how many parts each step's batch is split; AUTO tries several.
      order: "edges": of what is found for AUTO, what starts first is searched, too.
    """

    models: Sequence[str]
    clusters: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[int]
    max_trials: int | None
    budget_seconds: float
    memory_reserve: float = 0.1
    parallel: int = 1
    shards: int = 1
    order: str = "none"

    def cells(self) -> list[Cell]:
        """All cells, those of one model and cluster together; what is named twice runs once."""
        keys = itertools.product(self.models, self.clusters, self.algorithms, self.seeds)
        limits = self.max_trials, self.budget_seconds, self.shards, self.order
        return [Cell(*key, *limits) for key in dict.fromkeys(keys)]


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

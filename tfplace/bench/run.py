"""Runs the cells that are not done, several at a time; one that fails is a row that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from graphs import zoo
from graphs.child_process import child_environment
from graphs.errors import TfplaceError
from tfplace.bench.grid import Cell, Grid, cells_of, write_rows
from tfplace.options import ProblemOptions
from tfplace.prepare import prepare
from tfplace.task import write_task

SETUP_SECONDS = 600.0  # what a cell may take beyond its budget: imports, compiling, one batch


def run_grid(
    grid: Grid,
    path: str,
    rows: list[dict[str, Any]],
    on_row: Callable[[dict[str, Any], int, int], None],
) -> list[dict[str, Any]]:
    """Runs what `rows` lack and writes `path` after every cell.

    Args:
      grid: the bench.
      path: FILE.json.
      rows: of an earlier run; those that belong to other grids stay in the file, and cells
        that failed are tried again.
      on_row: told each new row, and how many of how many are done.

    Returns:
      All rows of this grid, in its order.
    """
    cells = cells_of(grid)
    rows[:] = [r for r in rows if "error" not in r or not any(c.matches(r, grid) for c in cells)]
    todo = [cell for cell in cells if not any(cell.matches(row, grid) for row in rows)]
    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="tfplace_bench_") as scratch:
        tasks = _Tasks(grid, scratch)

        def run(cell: Cell) -> None:
            row = _row(cell, grid, tasks)
            with lock:
                rows.append(row)
                write_rows(path, rows)
                done = sum(any(c.matches(r, grid) for r in rows) for c in cells)
                on_row(row, done, len(cells))

        with ThreadPoolExecutor(grid.parallel) as pool:
            list(pool.map(run, todo))
    own = [row for cell in cells for row in rows if cell.matches(row, grid)]
    others = [row for row in rows if not any(cell.matches(row, grid) for cell in cells)]
    write_rows(path, own + others)
    return own


class _Tasks:
    """Problems of the grid, each prepared once, by whichever cell needs it first."""

    def __init__(self, grid: Grid, scratch: str):
        self._grid = grid
        self._scratch = scratch
        self._lock = threading.Lock()
        self._folders: dict[tuple[str, str], str | TfplaceError] = {}

    def folder(self, model: str, cluster: str) -> str:
        """Where the task lies.

        Raises:
          TfplaceError: it can't be prepared.
        """
        with self._lock:
            key = (model, cluster)
            if key not in self._folders:
                try:
                    self._folders[key] = self._prepared(model, cluster)
                except TfplaceError as error:
                    self._folders[key] = error
            found = self._folders[key]
        if isinstance(found, TfplaceError):
            raise found
        return found

    def _prepared(self, model: str, cluster: str) -> str:
        options = ProblemOptions(
            self._path(model), cluster=cluster, memory_reserve=self._grid.memory_reserve
        )
        folder = tempfile.mkdtemp(dir=self._scratch)
        write_task(folder, prepare(options).task)
        return folder

    def _path(self, model: str) -> str:
        if model.partition(":")[0] not in zoo.NAMES or os.path.exists(model):
            return model
        path = Path(self._scratch, f"{model.replace(':', '_').replace(',', '_')}.pb")
        if not path.exists():
            name, options = zoo.parse(model)
            size = str(options.pop("size", "published"))
            zoo.write(zoo.build(name, size, **options), str(path))
        return str(path)


def _row(cell: Cell, grid: Grid, tasks: _Tasks) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": cell.model,
        "cluster": cell.cluster,
        "algorithm": cell.algorithm,
        "seed": cell.seed,
        "max_trials": grid.max_trials,
        "budget_seconds": grid.budget_seconds,
    }
    try:
        folder = tasks.folder(cell.model, cell.cluster)
    except TfplaceError as error:
        return {**row, **_failed(str(error))}
    request = {
        "task": folder,
        "algorithm": cell.algorithm,
        "seed": cell.seed,
        "max_trials": grid.max_trials,
        "budget_seconds": grid.budget_seconds,
        "num_threads": max(1, len(os.sched_getaffinity(0)) // grid.parallel),
    }
    return {**row, **_run(request)}


def _run(request: dict[str, Any]) -> dict[str, Any]:
    environment = {**child_environment(), "OMP_NUM_THREADS": str(request["num_threads"])}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tfplace.bench.cell", json.dumps(request)],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * request["budget_seconds"] + SETUP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(f"no answer within {2 * request['budget_seconds'] + SETUP_SECONDS:.0f} s")
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        return _failed(words[-1] if words else f"status {done.returncode}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _failed(why: str) -> dict[str, Any]:
    return {
        "trials": 0,
        "infeasible_trials": 0,
        "seconds": 0.0,
        "step_seconds": None,
        "feasible": False,
        "single_step_seconds": None,
        "lower_bound_seconds": None,
        "history": [],
        "error": why,
    }


def num_failed(rows: Sequence[dict[str, Any]]) -> int:
    """Cells that ended with an error, not those that found nothing feasible."""
    return sum("error" in row for row in rows)

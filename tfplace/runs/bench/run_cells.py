"""Runs the cells that are not done, several at a time; one that fails is a row that says why."""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

from graphs.errors import TfplaceError
from tfplace.runs.bench.cell_instances import Tasks
from tfplace.runs.bench.cell_process import run_cell_process
from tfplace.runs.bench.grid import Cell, Grid, cells_of, write_rows
from tfplace.runs.executors.local import LocalExecutor
from tfplace.runs.executors.pool import run_all
from tfplace.runs.executors.work_item import Executor

Row = dict[str, Any]

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class GridResult:
    """Attributes: rows of this grid that are done, in its order; interrupted: by a Ctrl-C."""

    rows: list[Row]
    interrupted: bool


def run_grid(
    grid: Grid,
    path: str,
    rows: list[Row],
    on_row: Callable[[Row, int, int], None],
    executor: Executor | None = None,
) -> GridResult:
    """Runs what `rows` lack and writes `path` after every cell.

    Args:
      grid: the bench.
      path: FILE.json.
      rows: of an earlier run; those that belong to other grids stay in the file, and cells
        that failed are tried again.
      on_row: told each new row, and how many of how many are done.
      executor: where the cells run; processes of this host if None.
    """
    cells = cells_of(grid)
    rows = [r for r in rows if "error" not in r or not any(c.matches(r, grid) for c in cells)]
    todo = [cell for cell in cells if not any(cell.matches(row, grid) for row in rows)]
    lock = threading.Lock()
    executor = executor or LocalExecutor()
    with tempfile.TemporaryDirectory(prefix="tfplace_bench_") as scratch:
        tasks = Tasks(scratch, grid.memory_reserve)

        def run(cell: Cell) -> None:
            row = _row(cell, grid, tasks, executor)
            if row is None:
                return
            with lock:
                rows.append(row)
                write_rows(path, rows)
                done = sum(any(c.matches(r, grid) for r in rows) for c in cells)
                on_row(row, done, len(cells))

        interrupted = run_all(run, todo, grid.parallel, executor.stop)
    own = [row for cell in cells for row in rows if cell.matches(row, grid)]
    others = [row for row in rows if not any(cell.matches(row, grid) for cell in cells)]
    write_rows(path, own + others)
    return GridResult(own, interrupted)


def _row(cell: Cell, grid: Grid, tasks: Tasks, executor: Executor) -> Row | None:
    """The row of a cell, one with an "error" where it fails; None where it was stopped."""
    row: Row = {
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
    except Exception as error:  # a defect met by one model must not end the others
        _LOGGER.exception("preparing %s on %s", cell.model, cell.cluster)
        return {**row, **_failed(f"a defect of tfplace: {type(error).__name__}: {error}")}
    request = {
        "task": folder,
        "algorithm": cell.algorithm,
        "seed": cell.seed,
        "max_trials": grid.max_trials,
        "budget_seconds": grid.budget_seconds,
        "num_threads": max(1, len(os.sched_getaffinity(0)) // grid.parallel),
    }
    found = run_cell_process(executor, request)
    if found is None:
        return None
    return {**row, **(_failed(found) if isinstance(found, str) else found)}


def _failed(why: str) -> Row:
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


def num_failed(rows: Sequence[Row]) -> int:
    """Cells that ended with an error, not those that found nothing feasible."""
    return sum("error" in row for row in rows)

"""Runs the cells of a bench that are not done; one that fails is a row that says why."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from graphs.host.op_libraries import op_library_environment
from tfplace.runs.bench.grid import Cell, Grid, write_rows
from tfplace.runs.bench.instances import PreparedInstances
from tfplace.runs.executors.program import Executor, Program
from tfplace.runs.resumable import ResumableRun, Tell

Row = dict[str, Any]

SETUP_SECONDS = 600.0  # what a cell may take beyond its budget: imports, compiling, one batch


class BenchRun(ResumableRun[Row | None]):
    """Cells, each with its row, None where it is not done."""

    def __init__(
        self, grid: Grid, path: str, earlier: Sequence[Row], executor: Executor, tell: Tell[Any]
    ) -> None:
        """Takes from the rows of an earlier run what belongs to the grid.

        Args:
          grid: the bench.
          path: FILE.json, written after every cell.
          earlier: rows that it held before; those that belong to other grids stay in the file, and
            cells that failed are tried again.
          executor: where the cells run.
          tell: see ResumableRun.
        """
        self._grid, self._path = grid, path
        self._cells = grid.cells()
        self._others = [row for row in earlier if not any(c.matches(row) for c in self._cells)]
        done = [row for row in earlier if "error" not in row]
        row_of = {cell: row for row in done for cell in self._cells if cell.matches(row)}
        super().__init__([row_of.get(cell) for cell in self._cells], executor, tell)

    @property
    def done(self) -> list[Row]:
        """The rows of cells that are done, in the grid's order."""
        return [row for row in self.rows if row is not None]

    def is_ended(self, row: Row | None) -> bool:
        return row is not None

    def run(self, parallel: int) -> None:
        with tempfile.TemporaryDirectory(prefix="tfplace_bench_") as scratch:
            self._instances = PreparedInstances(
                scratch, self._grid.memory_reserve, self._grid.shards
            )
            super().run(parallel)

    def work(self, index: int) -> Iterator[Row]:
        cell = self._cells[index]
        ended = self._ended(lambda: self._program(cell))
        if ended is None:
            return
        failure = ended.failure()
        row = _failed(failure) if failure else json.loads(ended.output.splitlines()[-1])
        yield {**dataclasses.asdict(cell), **row}

    def keep(self) -> None:
        write_rows(self._path, [*self.done, *self._others])

    def _program(self, cell: Cell) -> Program:
        """`python -m tfplace.runs.bench.cell REQUEST`, whose last line on stdout is the row.

        Raises:
          TfplaceError: the cell's instance can't be prepared.
        """
        num_threads = max(1, len(os.sched_getaffinity(0)) // self._grid.parallel)
        request = {
            **dataclasses.asdict(cell),
            "instance": "{instance}",
            "memory_reserve": self._grid.memory_reserve,
            "num_threads": num_threads,
        }
        return Program(
            module="tfplace.runs.bench.cell",
            arguments=[json.dumps(request)],
            environment={"OMP_NUM_THREADS": str(num_threads), **op_library_environment()},
            folders={"instance": self._instances.folder(cell.model, cell.cluster)},
            time_limit_seconds=2 * cell.budget_seconds + SETUP_SECONDS,
        )


def _failed(why: str) -> Row:
    """What the row of a cell holds that failed, beside its key."""
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

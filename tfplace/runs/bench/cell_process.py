"""Cells in processes of their own, wherever an executor starts them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfplace.runs.executors.work_item import Executor, WorkItem

SETUP_SECONDS = 600.0  # what a cell may take beyond its budget: imports, compiling, one batch


def run_cell_process(executor: Executor, request: Mapping[str, Any]) -> dict[str, Any] | str | None:
    """What the row of a cell has beside its key.

    Args:
      executor: where it runs.
      request: see tfplace.runs.bench.cell.

    Returns:
      The rest of the row; why the cell failed; or None where it was stopped.
    """
    limit = 2 * request["budget_seconds"] + SETUP_SECONDS
    work = WorkItem(
        module="tfplace.runs.bench.cell",
        arguments=[json.dumps({**request, "task": "{task}"})],
        environment={"OMP_NUM_THREADS": str(request["num_threads"])},
        folders={"task": request["task"]},
        time_limit_seconds=limit,
    )
    ended = executor.run(work)
    if ended is None:
        return None
    failure = ended.failure()
    if failure:
        return failure
    row: dict[str, Any] = json.loads(ended.output.splitlines()[-1])
    return row

"""`tfplace bench --models=… --clusters=… --algorithms=… --output=FILE.json`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from graphs.errors import UsageError
from tfplace.algorithm_table import require_known
from tfplace.commands.from_flags import print_json, quiet_tensorflow

EXIT_FAILED_CELLS = 2


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs what is not done yet, then writes JSON, CSV, Markdown and a picture."""
    quiet_tensorflow(values.verbosity)
    from tfplace.bench.grid import Grid, read_rows, split_names, whole_numbers
    from tfplace.bench.run import num_failed, run_grid
    from tfplace.bench.table import as_csv, as_markdown, draw_curves
    from tfplace.output_paths import write_file

    if not values.output or not values.output.endswith(".json"):
        raise UsageError(
            f"writing the bench: --output is {values.output!r}; wanted FILE.json, beside which "
            "FILE.csv, FILE.md and FILE.png are written"
        )
    grid = Grid(
        models=split_names(values.models, "--models"),
        clusters=split_names(values.clusters, "--clusters"),
        algorithms=split_names(values.algorithms, "--algorithms"),
        seeds=whole_numbers(split_names(values.seeds, "--seeds"), "--seeds"),
        max_trials=values.max_trials,
        budget_seconds=values.budget_seconds,
        memory_reserve=values.memory_reserve,
        parallel=values.parallel or len(os.sched_getaffinity(0)),
    )
    for algorithm in grid.algorithms:
        require_known(algorithm)
    earlier = [] if values.overwrite else read_rows(values.output)
    rows = run_grid(grid, values.output, earlier, lambda *row: _tell(values.verbosity, *row))
    stem = values.output.removesuffix(".json")
    markdown = as_markdown(rows)
    write_file(f"{stem}.csv", as_csv(rows).encode(), overwrite=True)
    write_file(f"{stem}.md", markdown.encode(), overwrite=True)
    draw_curves(rows, f"{stem}.png")
    if values.format == "json":
        print_json(rows)
    else:
        print(markdown, end="")
    return EXIT_FAILED_CELLS if num_failed(rows) else 0


def _tell(verbosity: int, row: dict[str, Any], done: int, total: int) -> None:
    if verbosity < 0:
        return
    name = f"{row['model']} on {row['cluster']}, {row['algorithm']}, seed {row['seed']}"
    if "error" in row:
        found = f"failed: {row['error']}"
    elif row["step_seconds"] is None:
        found = f"nothing feasible in {row['trials']} trials"
    else:
        rate = row["trials"] / max(row["seconds"], 1e-9)
        found = f"{row['step_seconds']:.4g} s, {row['trials']:,} trials, {rate:,.0f} trials/s"
    print(f"tfplace: {done}/{total} {name}: {found}", file=sys.stderr, flush=True)

"""`tfplace bench --models=… --clusters=… --algorithms=… --output=FILE.json`."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from graphs.errors import UsageError
from tfplace.algorithms.table import require_known
from tfplace.commands.error_line import print_error
from tfplace.commands.from_flags import print_json, quiet_tensorflow

if TYPE_CHECKING:
    from tfplace.progress import Progress

EXIT_FAILED_CELLS = 2
EXIT_INTERRUPTED = 5


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs what is not done yet, then writes JSON, CSV, Markdown and a picture."""
    quiet_tensorflow(values.verbosity)
    from tfplace.output_paths import writable
    from tfplace.progress import progress_for
    from tfplace.runs.bench.grid import Grid, cells_of, read_rows, split_names, whole_numbers
    from tfplace.runs.bench.run_cells import num_failed, run_grid
    from tfplace.runs.executors.executor_of_name import executor_for

    if not values.output or not values.output.endswith(".json"):
        raise UsageError(
            f"writing the bench: --output is {values.output!r}; wanted FILE.json, beside which "
            "FILE.csv, FILE.md and FILE.png are written"
        )
    names = split_names(values.algorithms, "--algorithms")
    for algorithm in names:
        require_known(algorithm)
    stem = values.output.removesuffix(".json")
    earlier = [] if values.overwrite else read_rows(values.output)
    progress = progress_for(values.verbosity)
    with (
        writable(*(f"{stem}{ending}" for ending in (".json", ".csv", ".md", ".png"))),
        executor_for(values.executor, values.ray_address) as (executor, capacity),
        progress.working(),
    ):
        grid = Grid(
            models=split_names(values.models, "--models"),
            clusters=split_names(values.clusters, "--clusters"),
            algorithms=names,
            seeds=whole_numbers(split_names(values.seeds, "--seeds"), "--seeds"),
            max_trials=values.max_trials,
            budget_seconds=values.budget_seconds,
            memory_reserve=values.memory_reserve,
            parallel=values.parallel or capacity or len(os.sched_getaffinity(0)),
        )
        result = run_grid(
            grid, values.output, earlier, functools.partial(_tell, progress), executor
        )
    text = _write_tables(result.rows, stem)
    if values.format == "json":
        print_json(result.rows)
    else:
        print(text, end="")
    if result.interrupted:
        print_error(
            f"running a bench: interrupted; {len(result.rows)} of {len(cells_of(grid))} cells are "
            f"in {values.output}; the same command goes on"
        )
        return EXIT_INTERRUPTED
    failed = num_failed(result.rows)
    if failed:
        print_error(
            f"running a bench: {failed} of {len(result.rows)} cells failed; {values.output} says "
            "why; the same command tries them again"
        )
        return EXIT_FAILED_CELLS
    return 0


def _write_tables(rows: Sequence[dict[str, Any]], stem: str) -> str:
    """Writes STEM.csv, .md and .png; returns what a person is shown."""
    from tfplace.output_paths import write_file
    from tfplace.runs.bench.curves import draw_curves
    from tfplace.runs.bench.run_cells import num_failed
    from tfplace.runs.bench.table import as_csv, as_markdown, as_text, summary

    if not rows:
        return "no cell is done\n"
    found = summary(rows)
    write_file(f"{stem}.csv", as_csv(rows).encode(), overwrite=True)
    write_file(f"{stem}.md", as_markdown(found).encode(), overwrite=True)
    draw_curves(rows, f"{stem}.png")
    failed = num_failed(rows)
    again = f"failed    {failed} cells; the same command tries them again\n" if failed else ""
    return f"{as_text(found)}{again}written   {stem}.json, .csv, .md, .png\n"


def _tell(progress: Progress, row: dict[str, Any], done: int, total: int) -> None:
    name = f"{row['model']} on {row['cluster']}, {row['algorithm']}, seed {row['seed']}"
    if "error" in row:
        found = f"failed: {row['error']}"
    elif row["step_seconds"] is None:
        found = f"nothing feasible in {row['trials']} trials"
    else:
        rate = row["trials"] / max(row["seconds"], 1e-9)
        found = f"{row['step_seconds']:.4g} s, {row['trials']:,} trials, {rate:,.0f} trials/s"
    progress.say(f"{done}/{total} {name}: {found}")
    progress.part(done, total)

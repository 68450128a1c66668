"""`tfplace bench --models=… --clusters=… --algorithms=… --output=FILE.json`."""

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from graphs.counted import counted
from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.protos import Json
from tfplace.algorithms.table import require_known
from tfplace.commands.from_flags import num_shards, split_names, whole_numbers
from tfplace.commands.outcome import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    failed,
    require_output,
    text_output,
)

if TYPE_CHECKING:
    from tfplace.progress import Progress


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs what is not done yet, then writes JSON, CSV, Markdown and a picture."""
    from tfplace.output_paths import require_free, require_unread, writable
    from tfplace.progress import progress_for
    from tfplace.runs.bench.run_cells import BenchRun, Grid, num_failed, read_rows
    from tfplace.runs.executors import executor_for

    wanted = "FILE.json, beside which FILE.csv, FILE.md and FILE.png are written"
    require_output(values.output, ".json", "writing the bench", wanted)
    names = split_names(values.algorithms, "--algorithms")
    for algorithm in names:
        require_known(algorithm, "--algorithms")
    shards = num_shards(values.shards, may_be_auto=True)
    _check_order(values.order, shards)
    stem = values.output.removesuffix(".json")
    written = [f"{stem}{ending}" for ending in (".json", ".csv", ".md", ".png")]
    models = split_names(values.models, "--models")
    clusters = split_names(values.clusters, "--clusters")
    _require_named(models, clusters)
    for path in written:
        require_unread(path, "--output", [*models, *clusters])
        if not os.path.exists(values.output):  # so what stands there is of no bench
            require_free(path, values.overwrite)
    earlier = [] if values.overwrite else read_rows(values.output)
    progress = progress_for(values.verbosity)
    with (
        writable(*written),
        executor_for(values.executor, values.ray_address) as (executor, capacity),
        progress.working(),
    ):
        grid = Grid(
            models=models,
            clusters=clusters,
            algorithms=names,
            seeds=whole_numbers(split_names(values.seeds, "--seeds"), "--seeds"),
            max_trials=values.max_trials,
            budget_seconds=values.budget_seconds,
            memory_reserve=values.memory_reserve,
            shards=shards,
            order=values.order,
            # As many cells at once as the executor can run.
            parallel=values.parallel or capacity or len(os.sched_getaffinity(0)),
        )
        bench = BenchRun(grid, values.output, earlier, executor, functools.partial(_tell, progress))
        bench.run(grid.parallel)
    rows = bench.done
    text = _write_tables(rows, stem)
    if text_output(values, rows):
        print(text, end="")
    if bench.is_interrupted:
        return failed(
            f"running a bench: interrupted; {len(rows)} of {len(bench.rows)} cells are in "
            f"{values.output}; the same command goes on",
            EXIT_INTERRUPTED,
        )
    if num_failed(rows):
        return failed(
            f"running a bench: {num_failed(rows)} of {len(rows)} cells failed; {values.output} "
            "says why; the same command tries them again",
            EXIT_BAD_INPUT,
        )
    return 0


def _require_named(models: Sequence[str], clusters: Sequence[str]) -> None:
    """Looks up what are names: a misspelt one would fail in each of its cells.

    What looks like a path is left to the cells, so that one lost file doesn't end the others.

    Raises:
      UsageError: there is no such benchmark graph, or it has no such option.
      ClusterError: there is no such cluster.
    """
    from graphs import zoo
    from graphs.clusters.discovery import find_cluster

    for model in models:
        name = model.partition(":")[0]
        if name in zoo.NAMES and not os.path.exists(model):
            zoo.parse(model)
        elif not os.path.exists(model) and not {"/", "."} & set(model):
            raise UsageError(
                f"reading --models={model}: there is no such benchmark graph, and no file"
                f"{did_you_mean(name, zoo.NAMES)}; wanted {', '.join(zoo.NAMES)}, each with "
                "options as in nmt:num_layers=4, or paths"
            )
    for cluster in clusters:
        if cluster != "local" and not cluster.endswith(".json"):
            find_cluster(cluster)


def _check_order(order: str, shards: int) -> None:
    from tfplace.preparing.options import AUTO

    if order != "none" and shards != AUTO:
        raise UsageError(
            f"reading --order={order}: bench searches what starts first beside the number of "
            f"shards, found --shards={shards}; give --shards=auto, or no --order"
        )


def _write_tables(rows: Sequence[dict[str, Json]], stem: str) -> str:
    """Writes STEM.csv, .md and .png; returns what a person is shown."""
    from tfplace.output_paths import write_file
    from tfplace.runs.bench.run_cells import num_failed
    from tfplace.runs.bench.table import COLUMNS, as_markdown, as_text, draw_curves, summary
    from tfplace.runs.tables import csv_text

    if not rows:
        return "no cell is done\n"
    table = summary(rows)
    write_file(f"{stem}.csv", csv_text(COLUMNS, rows).encode(), overwrite=True)
    write_file(f"{stem}.md", as_markdown(table).encode(), overwrite=True)
    draw_curves(rows, f"{stem}.png")
    failures = num_failed(rows)
    noun = counted(
        failures, "cell; the same command tries it", "cells; the same command tries them"
    )
    again = f"failed    {noun} again\n" if failures else ""
    return f"{as_text(table)}{again}written   {stem}.json, .csv, .md, .png\n"


def _tell(progress: "Progress", row: dict[str, Json], done: int, total: int) -> None:
    name = f"{row['model']} on {row['cluster']}, {row['algorithm']}, seed {row['seed']}"
    if "error" in row:
        outcome = f"failed: {row['error']}"
    elif row["step_seconds"] is None:
        outcome = f"nothing feasible in {counted(row['trials'], 'trial')}"
    else:
        rate = row["trials"] / max(row["seconds"], 1e-9)
        outcome = (
            f"{row['step_seconds']:.4g} s, {counted(row['trials'], 'trial')}, {rate:,.0f} trials/s"
        )
    progress.say(f"{done}/{total} {name}: {outcome}")
    progress.part(done, total)

"""`tfplace batch JOBS`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from tfplace.commands.error_line import print_error
from tfplace.commands.from_flags import model_of, print_json

if TYPE_CHECKING:
    from tfplace.runs.batch.run_jobs import Listener
    from tfplace.runs.batch.summary import JobRow

EXIT_FAILED_JOBS = 2
EXIT_INTERRUPTED = 5


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs what is not done yet and writes the summary; the status says whether a job failed."""
    from tfplace.commands import flag_table
    from tfplace.commands.command_table import COMMANDS
    from tfplace.commands.parse import parse
    from tfplace.runs.batch.job import JobLimits
    from tfplace.runs.batch.job_file import JobFile, memory_limit
    from tfplace.runs.batch.run_jobs import BatchOptions, run_batch
    from tfplace.runs.batch.summary import summary
    from tfplace.runs.executors.executor_of_name import executor_for

    path = model_of(arguments)
    output_dir = values.output_dir or str(Path(path).with_suffix("")) + "_batch"
    limits = JobLimits(
        values.time_limit_seconds, memory_limit(values.memory_limit), values.num_gpus
    )
    job_file = JobFile(
        path,
        output_dir,
        limits,
        [name for name in COMMANDS if name != "batch"],
        lambda name, words: parse(name, words, flag_table.JOB),
    )
    jobs = job_file.read()
    with (
        executor_for(values.executor, values.ray_address) as (executor, capacity),
        _listener(values.verbosity) as listener,
    ):
        options = BatchOptions(output_dir, values.parallel or capacity or 1, values.resume)
        result = run_batch(jobs, executor, options, listener)
    found = summary(result.rows)
    if values.format == "json":
        print_json(found)
    else:
        _print(result.rows, output_dir)
    if result.interrupted:
        print_error(
            f"running a batch: interrupted; {found['num_done']} of {found['num_jobs']} jobs are "
            "done; the same command goes on"
        )
        return EXIT_INTERRUPTED
    if found["num_failed"]:
        print_error(
            f"running a batch: {found['num_failed']} of {found['num_jobs']} jobs failed; "
            f"{output_dir}/summary.md says why; the same command tries them again"
        )
        return EXIT_FAILED_JOBS
    return 0


@contextlib.contextmanager
def _listener(verbosity: int) -> Iterator[Listener]:
    from tfplace.runs.batch.display import LineListener, TableListener
    from tfplace.runs.batch.run_jobs import Listener

    if verbosity < 0:
        yield Listener()
    elif sys.stderr.isatty():
        with TableListener() as table:
            yield table
    else:
        yield LineListener()


def _print(rows: Sequence[JobRow], output_dir: str) -> None:
    """The table of all jobs, and where everything is."""
    from rich.table import Table
    from rich.text import Text

    from tfplace.report.text import console
    from tfplace.runs.batch.display import STYLES
    from tfplace.runs.batch.job_file import JOBS_FOLDER
    from tfplace.units_text import seconds_text

    table = Table(box=None, pad_edge=False)
    for heading in ("job", "state", "took", "found"):
        table.add_column(heading, justify="right" if heading == "took" else "left")
    for row in rows:
        state = row.state.state
        cells = Text(row.job.name), Text(state, STYLES[state]), seconds_text(row.state.seconds)
        table.add_row(*cells, Text(row.sentence()))
    out = console()
    out.print(table)
    logs = str(Path(output_dir, JOBS_FOLDER, "NAME", "log.txt"))
    out.print(f"written   {output_dir}/summary.json, .csv, .md; logs: {logs}", soft_wrap=True)
    if any(row.state.state == "failed" for row in rows):
        out.print("failed    jobs are tried again by the same command")

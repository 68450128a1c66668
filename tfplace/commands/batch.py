"""`tfplace batch JOBS`."""

import os
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from tfplace.commands.outcome import EXIT_BAD_INPUT, EXIT_INTERRUPTED, failed, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs what is not done yet and writes the summary; the status says whether a job failed."""
    from tfplace.commands.job_file import JobFile, job_limits
    from tfplace.output_paths import require_unread
    from tfplace.runs.batch.display import final_table, listener_for
    from tfplace.runs.batch.job_state import JOBS_FOLDER, LOG_FILE
    from tfplace.runs.batch.run_jobs import run_batch
    from tfplace.runs.batch.summary import SUMMARY_FILES, summary
    from tfplace.runs.executors import executor_for

    path = arguments[0]
    output_dir = values.output_dir or os.path.splitext(path)[0] + "_batch"
    for name in SUMMARY_FILES:
        require_unread(f"{output_dir}/{name}", "--output_dir", [path])
    jobs = JobFile(path, output_dir, job_limits(values)).read()
    listener = listener_for(values.verbosity)
    with executor_for(values.executor, values.ray_address) as (executor, capacity):
        parallel = values.parallel or capacity or 1
        batch = run_batch(jobs, executor, listener, output_dir, parallel, values.resume)
    result = summary(batch.rows)
    if out := text_output(values, result):
        out.print(final_table(batch.rows))
        logs = Path(output_dir, JOBS_FOLDER, "NAME", LOG_FILE)
        out.print(f"written   {output_dir}/summary.json, .csv, .md", soft_wrap=True)
        out.print(f"logs      {logs}", soft_wrap=True)
        if result["num_failed"]:
            out.print("failed    jobs are tried again by the same command")
    if batch.is_interrupted:
        return failed(
            f"running a batch: interrupted; {result['num_done']} of {result['num_jobs']} jobs are "
            "done; the same command goes on",
            EXIT_INTERRUPTED,
        )
    if result["num_failed"]:
        return failed(
            f"running a batch: {result['num_failed']} of {result['num_jobs']} jobs failed; "
            f"{output_dir}/summary.md says why; the same command tries them again",
            EXIT_BAD_INPUT,
        )
    return 0

"""Runs the jobs of a batch that are not done.

What is known of a job is written before it begins and after it has ended, so a batch that is
killed at any moment goes on: what is done stays done, what ran is begun again.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphs.errors import OutputError
from tfplace.output_paths import write_file
from tfplace.runs.batch.job_state import JOBS_FOLDER, Job, JobFolder, JobState, may_replace
from tfplace.runs.batch.summary import SUMMARY_FILE, JobRow, write_summary
from tfplace.runs.executors.program import Executor, Program
from tfplace.runs.resumable import ResumableRun
from tfplace.search.kept.folder import LOCK_FILE, locked_folder


class Listener:
    """Is told what goes on; says nothing."""

    @contextlib.contextmanager
    def watching(self, rows: Sequence[JobRow]) -> Iterator[None]:
        """Around the batch, which replaces the rows of jobs that begin and end."""
        yield

    def change(self, row: JobRow, num_ended: int, num_jobs: int) -> None:
        """A job has begun or ended; never called by two threads at a time."""


class BatchRun(ResumableRun[JobRow]):
    """Jobs, each with a folder that holds what is known of it."""

    def __init__(
        self, jobs: Sequence[Job], executor: Executor, listener: Listener, root: Path, resume: bool
    ) -> None:
        """Reads what is known of the jobs; for the arguments see run_batch."""
        self._folders = [JobFolder(root / JOBS_FOLDER / job.name) for job in jobs]
        rows = [_first_row(*each, resume) for each in zip(jobs, self._folders, strict=True)]
        super().__init__(rows, executor, listener.change)
        self._root = root

    def is_ended(self, row: JobRow) -> bool:
        return row.state.state in ("done", "failed")

    def work(self, index: int) -> Iterator[JobRow]:
        job, folder = self.rows[index].job, self._folders[index]
        state = folder.begun(job, self.rows[index].state)
        began = time.monotonic()
        yield JobRow(job, state, began=began)
        with folder.log.open("a", encoding="utf-8") as log:
            log.write(f"== attempt {state.attempts}, {time.strftime('%Y-%m-%d %H:%M:%S')}: "
                      f"tfplace {' '.join(job.full_words)}\n")  # fmt: skip
        ended = self._ended(lambda: _program(job, state, folder))
        if ended is None:
            return
        if ended.output:
            write_file(str(folder.result), ended.output, overwrite=True)
        failure = ended.failure()
        state = dataclasses.replace(
            state,
            state="failed" if failure else "done",
            exit_status=ended.status,
            error=failure,
            seconds=time.monotonic() - began,
            host=ended.host,
            ended=time.time(),
        )
        folder.write(state)
        yield JobRow(job, state, folder.read_result())

    def keep(self) -> None:
        write_summary(self._root, self.rows)


def run_batch(
    jobs: Sequence[Job],
    executor: Executor,
    listener: Listener,
    output_dir: str,
    parallel: int = 1,
    resume: bool = True,
) -> BatchRun:
    """Runs what is not done and writes the summary after every change.

    Args:
      jobs: in the order in which they begin.
      output_dir: where summary, logs and states lie.
      parallel: jobs at a time.
      resume: whether jobs that are done stay done.

    Raises:
      OutputError: output_dir is something else, can't be written, or is another batch's just now.
    """
    root = Path(output_dir)
    with _owned(root):
        batch = BatchRun(jobs, executor, listener, root, resume)
        with listener.watching(batch.rows):
            batch.run(parallel)
    return batch


@contextlib.contextmanager
def _owned(root: Path) -> Iterator[None]:
    """Makes the folder this process's; the kernel frees it when the process ends, however."""
    doing = f"writing the batch to {root}"
    with locked_folder(root, doing, "--output_dir"):
        foreign = [path.name for path in root.iterdir() if not path.name.startswith(".")]
        if foreign and not (root / SUMMARY_FILE).exists():
            (root / LOCK_FILE).unlink()  # the folder stays as it was
            raise OutputError(
                f"{doing}: it holds other things, such as {min(foreign)!r}; give another "
                "--output_dir"
            )
        yield


def _first_row(job: Job, folder: JobFolder, resume: bool) -> JobRow:
    if job.error:
        return JobRow(job, JobState(job.fingerprint, "failed", exit_status=1, error=job.error))
    state = folder.state_of(job, resume)
    was_done = state.state == "done"
    return JobRow(job, state, folder.read_result() if was_done else None, was_done)


def _program(job: Job, state: JobState, folder: JobFolder) -> Program:
    """`tfplace COMMAND …` as a process, with its result as JSON on stdout."""
    replace = ["--overwrite"] if may_replace(job, state) else []
    return Program(
        module="tfplace",
        arguments=[*job.full_words, *replace, "--format=json"],
        directory=os.getcwd(),
        log=str(folder.log),
        **vars(job.limits),
    )

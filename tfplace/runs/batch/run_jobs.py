"""Runs the jobs that are not done, several at a time; one that fails does not end the others.

What is known of a job is written before it begins and after it has ended, so a batch that is
killed at any moment goes on: what is done stays done, what ran is begun again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphs.errors import OutputError
from tfplace.output_paths import write_file
from tfplace.runs.batch.job import Job
from tfplace.runs.batch.job_file import JOBS_FOLDER
from tfplace.runs.batch.job_state import JobFolder, JobState, may_replace
from tfplace.runs.batch.summary import SUMMARY_FILE, JobRow, write_summary
from tfplace.runs.executors.pool import run_all
from tfplace.runs.executors.work_item import Ended, Executor, WorkItem
from tfplace.search.kept.lock import locked_folder

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """How a batch runs.

    Attributes:
      output_dir: where summary, logs and states lie.
      parallel: jobs at a time.
      resume: whether jobs that are done stay done.
    """

    output_dir: str
    parallel: int = 1
    resume: bool = True


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """Attributes: a row for each job, in their order; interrupted: by Ctrl-C or SIGTERM."""

    rows: Sequence[JobRow]
    interrupted: bool


class Listener:
    """Told what goes on, from several threads; says nothing."""

    def begin(self, rows: Sequence[JobRow]) -> None:
        """The batch begins, with some jobs done by an earlier run."""

    def change(self, index: int, row: JobRow) -> None:
        """A job has begun or ended."""


def run_batch(
    jobs: Sequence[Job], executor: Executor, options: BatchOptions, listener: Listener
) -> BatchResult:
    """Runs what is not done and writes the summary after every job.

    Raises:
      OutputError: output_dir is something else, can't be written, or is another batch's just now.
    """
    root = Path(options.output_dir)
    with _owned(root):
        batch = _Batch(jobs, executor, root, options.resume, listener)
        batch.write_summary()
        listener.begin(batch.rows)
        interrupted = run_all(batch.run, batch.todo(), options.parallel, executor.stop)
        batch.write_summary()
        return BatchResult(batch.rows, interrupted)


@contextlib.contextmanager
def _owned(root: Path) -> Iterator[None]:
    """Makes the folder this process's; the kernel frees it when the process ends, however."""
    doing = f"writing the batch to {root}"
    with locked_folder(root, doing, "--output_dir"):
        foreign = [path.name for path in root.iterdir() if not path.name.startswith(".")]
        if foreign and not (root / SUMMARY_FILE).exists():
            raise OutputError(
                f"{doing}: it holds other things, such as {min(foreign)!r}; give another "
                "--output_dir"
            )
        yield


class _Batch:
    """Jobs with what is known of each."""

    def __init__(
        self, jobs: Sequence[Job], executor: Executor, root: Path, resume: bool, listener: Listener
    ) -> None:
        self._executor, self._root, self._listener = executor, root, listener
        self._lock = threading.Lock()
        self._folders = [JobFolder(root / JOBS_FOLDER / job.name) for job in jobs]
        self.rows = [
            self._first_row(job, folder, resume)
            for job, folder in zip(jobs, self._folders, strict=True)
        ]

    def todo(self) -> list[int]:
        """Positions of the jobs that have to run."""
        return [
            index
            for index, row in enumerate(self.rows)
            if row.state.state != "done" and not row.job.error
        ]

    def run(self, index: int) -> None:
        """One job from its beginning to its end; it stays "running" where it was stopped."""
        job, folder, before = self.rows[index].job, self._folders[index], self.rows[index].state
        state = folder.begun(job, before)
        self._change(index, JobRow(job, state))
        with folder.log.open("a", encoding="utf-8") as log:
            log.write(f"== attempt {state.attempts}, {time.strftime('%Y-%m-%d %H:%M:%S')}: "
                      f"tfplace {job.command} {' '.join([*job.words, *job.places])}\n")  # fmt: skip
        began = time.monotonic()
        ended = self._ended(_work(job, state, folder))
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
        self._change(index, JobRow(job, state, folder.read_result()))
        self.write_summary()

    def write_summary(self) -> None:
        """Replaces summary.json, .csv and .md."""
        with self._lock:
            write_summary(self._root, self.rows)

    def _first_row(self, job: Job, folder: JobFolder, resume: bool) -> JobRow:
        if job.error:
            failed = JobState(job.fingerprint, "failed", exit_status=1, error=job.error)
            return JobRow(job, failed)
        state = folder.state_of(job)
        if state.state == "done" and resume:
            return JobRow(job, state, folder.read_result(), was_done=True)
        attempts = state.attempts if resume else 0
        again = JobState(job.fingerprint, "waiting", attempts, state.own_outputs)
        return JobRow(job, again)

    def _ended(self, work: WorkItem) -> Ended | None:
        try:
            return self._executor.run(work)
        except Exception as error:  # a defect met by one job must not end the others
            _LOGGER.exception("running %s", work.arguments)
            return Ended(-1, b"", "", f"a defect of tfplace: {type(error).__name__}: {error}")

    def _change(self, index: int, row: JobRow) -> None:
        with self._lock:
            self.rows[index] = row
        self._listener.change(index, row)


def _work(job: Job, state: JobState, folder: JobFolder) -> WorkItem:
    """`tfplace COMMAND …` as a process, with its result as JSON on stdout."""
    replace = ["--overwrite"] if may_replace(job, state) else []
    limits = job.limits
    return WorkItem(
        module="tfplace",
        arguments=[job.command, *job.words, *job.places, *replace, "--format=json"],
        directory=os.getcwd(),
        log=str(folder.log),
        time_limit_seconds=limits.time_limit_seconds,
        memory_limit_bytes=limits.memory_limit_bytes,
        num_gpus=limits.num_gpus,
    )

"""A job of a batch, and what is kept of it between two runs: a file that is whole or not there."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from graphs.protos import Json
from rewrite.emit import EXTRA_DIRECTORY
from tfplace.output_paths import write_file
from tfplace.runs.executors.program import ProcessLimits

State = Literal["waiting", "running", "done", "failed"]
REPORT_FILE = "report.json"
JOBS_FOLDER, CHECKPOINT_FOLDER = "jobs", "checkpoint"
STATE_FILE, LOG_FILE, RESULT_FILE = "state.json", "log.txt", "result.json"
GOES_ON_BY_ITSELF = ("bench", "train")  # with what an interrupted run of theirs left


@dataclasses.dataclass(frozen=True)
class Job:
    """A line of JOBS.

    Attributes:
      name: unique in its batch; also the name of its folder.
      line_number: where it stands.
      line: how it was written.
      command: one of tfplace's commands, "optimize" where none was written.
      words: its arguments and flags, those of flagfiles among them.
      added_flags: flags that the batch adds, such as --output_dir, where the line does not say
        where the job writes.
      outputs: the paths that it writes.
      has_overwrite: whether its command refuses to replace them unless told --overwrite.
      limits: what it may take.
      left_out: shared flags that its command doesn't have.
      error: why it can't run, "" if it can.
    """

    name: str
    line_number: int
    line: str
    command: str = "optimize"
    words: Sequence[str] = ()
    added_flags: Sequence[str] = ()
    outputs: Sequence[str] = ()
    has_overwrite: bool = False
    limits: ProcessLimits = dataclasses.field(default_factory=ProcessLimits)
    left_out: Sequence[str] = ()
    error: str = ""

    @property
    def full_words(self) -> list[str]:
        """The command with all its arguments and flags."""
        return [self.command, *self.words, *self.added_flags]

    @property
    def notes(self) -> list[str]:
        """What a person should know before it begins."""
        if not self.left_out:
            return []
        names = ", ".join(f"--{name}" for name in self.left_out)
        return [
            f"line {self.line_number}: left out {names} of the shared flags, which `tfplace "
            f"{self.command}` doesn't have"
        ]

    @property
    def fingerprint(self) -> str:
        """Of all that decides what comes out: a job with another one has to be done again."""
        return hashlib.sha256(json.dumps([self.command, *self.words]).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class JobState:
    """How far a job is.

    Attributes:
      fingerprint: of the job that this was said of.
      state: "running" is also what a batch leaves that was killed.
      attempts: how often it was begun since its line is what it is.
      own_outputs: outputs that were not there before this job, so that it may replace them.
      inodes_before: {output: inode} of what was there when the last attempt began.
      exit_status: of the last attempt; None where that did not end.
      error: why the last attempt failed; "" where it did not.
      seconds: how long the last attempt took.
      host: where the last attempt ran.
      ended: when the last attempt ended, in seconds since 1970.
    """

    fingerprint: str
    state: State = "waiting"
    attempts: int = 0
    own_outputs: Sequence[str] = ()
    inodes_before: Mapping[str, int] = dataclasses.field(default_factory=dict)
    exit_status: int | None = None
    error: str = ""
    seconds: float | None = None
    host: str = ""
    ended: float | None = None


class JobFolder:
    """The folder of a job in its batch: state, log, result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / LOG_FILE
        self.result = path / RESULT_FILE

    def state_of(self, job: Job, resume: bool) -> JobState:
        """The job's state at the beginning of a batch: done or waiting.

        Args:
          job: one whose line has changed since its state was written has to be done again; so has
            one whose state can't be read.
          resume: False where every job has to be done again.
        """
        before = self._read() or JobState(job.fingerprint)
        is_same = resume and before.fingerprint == job.fingerprint
        if is_same and before.state == "done":
            return before
        if is_same and (report := _whole_report(job, before)) is not None:
            write_file(str(self.result), report, overwrite=True)
            return self.write(dataclasses.replace(before, state="done", exit_status=0))
        attempts = before.attempts if is_same else 0
        return JobState(job.fingerprint, "waiting", attempts, before.own_outputs)

    def begun(self, job: Job, before: JobState) -> JobState:
        """Notes that an attempt begins, and which outputs will be the job's own.

        The first one begins afresh; later ones go on with the search that was kept.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not before.attempts:
            shutil.rmtree(self.path / CHECKPOINT_FOLDER, ignore_errors=True)
        outputs = [os.path.abspath(path) for path in job.outputs]
        here = os.path.abspath(self.path) + os.sep
        own = [
            path
            for path in outputs
            if path in before.own_outputs or path.startswith(here) or not os.path.lexists(path)
        ]
        inodes = {path: os.stat(path).st_ino for path in outputs if os.path.exists(path)}
        attempts = before.attempts + 1
        return self.write(JobState(job.fingerprint, "running", attempts, tuple(own), inodes))

    def write(self, state: JobState) -> JobState:
        """Replaces what was noted before, at one instant; returns the state."""
        content = json.dumps(vars(state), indent=1, allow_nan=False) + "\n"
        write_file(str(self.path / STATE_FILE), content.encode(), overwrite=True)
        return state

    def read_result(self) -> Json:
        """What the job printed, None where it printed nothing that can be read."""
        try:
            return json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _read(self) -> JobState | None:
        try:
            state = JobState(**json.loads((self.path / STATE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return state if state.state in get_args(State) else None


def _whole_report(job: Job, state: JobState) -> bytes | None:
    """The report of an optimisation that was killed when its output was whole already.

    A directory appears at its place at one instant, so one that the last attempt has put there is
    all that it had to write. What a job writes that was told to stop is only its best so far.
    """
    if job.command != "optimize" or state.state != "running":
        return None
    for path in map(os.path.abspath, job.outputs):
        try:
            if os.stat(path).st_ino == state.inodes_before.get(path):
                continue
            content = Path(path, EXTRA_DIRECTORY, REPORT_FILE).read_bytes()
            if not json.loads(content)["search"]["interrupted"]:
                return content
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def may_replace(job: Job, state: JobState) -> bool:
    """Whether an attempt is told to replace what is there: then all of it is the job's own.

    A job that was killed may have left its output complete, but not its state. What was there
    before the job is never replaced, unless its own line says --overwrite.
    """
    if not job.has_overwrite or job.command in GOES_ON_BY_ITSELF:
        return False
    there = [os.path.abspath(path) for path in job.outputs if os.path.lexists(path)]
    return bool(there) and all(path in state.own_outputs for path in there)

"""A job: one command with its flags, where it writes, and what it may take."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence

from tfplace.runs.executors.program import ProcessLimits


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

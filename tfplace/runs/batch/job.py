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
    error: str = ""

    @property
    def full_words(self) -> list[str]:
        """The command with all its arguments and flags."""
        return [self.command, *self.words, *self.added_flags]

    @property
    def fingerprint(self) -> str:
        """Of all that decides what comes out: a job with another one has to be done again."""
        return hashlib.sha256(json.dumps([self.command, *self.words]).encode()).hexdigest()

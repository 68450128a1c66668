"""A job: one command with its flags, where it writes, and what it may take."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class JobLimits:
    """What a job may take; None for no limit.

    Attributes:
      time_limit_seconds: wall time of an attempt.
      memory_limit_bytes: of its processes together.
      num_gpus: that it needs for itself.
    """

    time_limit_seconds: float | None = None
    memory_limit_bytes: int | None = None
    num_gpus: int = 0


@dataclasses.dataclass(frozen=True)
class Job:
    """A line of JOBS.

    Attributes:
      name: unique in its batch, and that of its folder.
      line_number, line: where and how it was written.
      command: a name of tfplace's commands, "optimize" where none was written.
      words: its arguments and flags, those of flagfiles among them.
      places: flags that the batch adds: where a job writes that doesn't say so.
      outputs: paths that it writes, where its line says or the batch does.
      has_overwrite: whether its command refuses to replace them unless told --overwrite.
      limits: see there.
      error: why it can't run, "" if it can.
    """

    name: str
    line_number: int
    line: str
    command: str = "optimize"
    words: Sequence[str] = ()
    places: Sequence[str] = ()
    outputs: Sequence[str] = ()
    has_overwrite: bool = False
    limits: JobLimits = JobLimits()
    error: str = ""

    @property
    def fingerprint(self) -> str:
        """Of all that decides what comes out: another one means that it has to be done again."""
        return hashlib.sha256(json.dumps([self.command, *self.words]).encode()).hexdigest()

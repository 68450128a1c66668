"""A program in a process of its own, who runs it, and how it ended."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from graphs.host.how_it_ended import end_cause


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What a process and all that it starts may take; None for no limit.

    Attributes:
      time_limit_seconds: the wall time after which it is killed.
      memory_limit_bytes: the memory of all its processes together.
      num_gpus: how many GPUs it needs for itself.
    """

    time_limit_seconds: float | None = None
    memory_limit_bytes: int | None = None
    num_gpus: int = 0


@dataclasses.dataclass(frozen=True)
class Program(ProcessLimits):
    """A module to be run as `python -m MODULE ARGUMENTS`.

    Attributes:
      module: the module that runs.
      arguments: its argv; `{name}` in one stands for a folder, see `folders`.
      directory: the working directory.
      environment: variables beside those of this process.
      folders: {name: path} of folders to read: `{name}` in an argument becomes the path where
        the folder lies for the process, on whichever host it runs.
      log: the file that stderr is added to; None where only its end is wanted.
    """

    module: str
    arguments: Sequence[str]
    directory: str = "/"
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folders: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: str | None = None


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
      status: the process's exit status; minus the signal's number if it was killed.
      output: what it wrote on stdout.
      complaints: the end of what it wrote on stderr.
      reason: which limit it was ended at, or why it could not run; "" where it ended by itself.
      host: where it ran.
    """

    status: int
    output: bytes
    complaints: str
    reason: str = ""
    host: str = ""

    def failure(self) -> str:
        """Why it failed, in a sentence; "" where it did not."""
        if self.reason or not self.status:
            return self.reason
        lines = [line for line in self.complaints.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("tfplace: error: ")]
        if said:
            return said[-1].removeprefix("tfplace: error: ")
        return lines[-1] if lines and self.status > 0 else end_cause(self.status)


class Executor(Protocol):
    """Runs programs, from several threads at a time."""

    def run(self, program: Program) -> Ended | None:
        """Runs it to its end; None where it was stopped."""
        ...

    def stop(self) -> None:
        """Ends what runs; nothing starts any more."""
        ...

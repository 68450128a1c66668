"""Child processes that never outlive this one and never see its working directory.

A child is `python -P -m graphs.host.dies_with_parent PARENT_PID MODULE …`: it gets no terminal
signals (own session) and dies with its parent, even when that one is killed. `start_child`'s talk
through an inherited pipe.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_STDERR_TAIL_BYTES = 2000


@dataclasses.dataclass(frozen=True)
class Child:
    """Attributes: process; connection: our end of the pipe; stderr: the file that it writes."""

    process: subprocess.Popen[bytes]
    connection: Connection
    stderr: IO[bytes]

    def end(self) -> None:
        """Kills it and waits for its end; harmless when it has ended already."""
        end_process(self.process)
        self.connection.close()
        self.stderr.close()

    def stderr_tail(self) -> str:
        """The end of what it said on stderr."""
        return stderr_tail(self.stderr)

    def end_cause(self) -> str:
        """How it ended, for a message: "killed by SIGSEGV", "status 3"."""
        return end_cause(self.process.wait())


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kills it and waits for its end; harmless when it has ended already."""
    if process.poll() is None:
        process.kill()
    process.wait()


def stderr_tail(stderr: IO[bytes]) -> str:
    """The end of what a child said in the file that is its stderr."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
    return stderr.read().decode(errors="replace").strip()


def end_cause(status: int) -> str:
    """A returncode in words: "killed by SIGSEGV", "status 3"."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def child_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """What to start for `python -m module ARGUMENTS` in a process that dies with this one."""
    # The kernel's death signal comes when the starting *thread* ends, so only the main one
    # may ask for it; the end of a pipe says the same to a child started elsewhere.
    from_main = threading.current_thread() is threading.main_thread()
    parent = str(os.getpid()) if from_main else "0"
    return [sys.executable, "-P", "-m", "graphs.host.dies_with_parent", parent, module, *arguments]


def child_environment() -> dict[str, str]:
    """This environment, with the project's packages importable and TensorFlow quiet."""
    search = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(search),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        # A process that takes all of a GPU's memory leaves nothing to the others.
        "TF_FORCE_GPU_ALLOW_GROWTH": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    }


def start_child(module: str, arguments: Sequence[str] = ()) -> Child:
    """Starts `python -m module` with a pipe to it.

    The working directory is the root: packages called `graphs` or `rewrite` may lie in the
    user's own, and -P keeps Python from looking there.

    Args:
      module: its `main` calls `connect_to_parent` first.
      arguments: what follows the pipe in its argv.
    """
    ours, theirs = Pipe(duplex=True)
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
    process = subprocess.Popen(
        child_command(module, [str(theirs.fileno()), *arguments]),
        cwd="/",
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return Child(process, ours, stderr)


def connect_to_parent(argv: Sequence[str]) -> tuple[Connection, Sequence[str]]:
    """In a child: opens the pipe.

    Returns:
      The pipe and the arguments that are the module's own.
    """
    descriptor, *arguments = argv
    return Connection(int(descriptor)), arguments

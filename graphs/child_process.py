"""Child processes that never outlive this one and never see its working directory.

A child is `python -P -m MODULE FD PARENT_PID …`: it talks through the inherited pipe FD, gets
no terminal signals (own session), and dies with its parent, even when that one is killed.
"""

from __future__ import annotations

import ctypes
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

PROJECT_ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1
_STDERR_TAIL_BYTES = 2000


@dataclasses.dataclass(frozen=True)
class Child:
    """Attributes: process; connection: our end of the pipe; stderr: the file that it writes."""

    process: subprocess.Popen[bytes]
    connection: Connection
    stderr: IO[bytes]

    def end(self) -> None:
        """Kills it and waits for its end; harmless when it has ended already."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.connection.close()
        self.stderr.close()

    def stderr_tail(self) -> str:
        """The end of what it said on stderr."""
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
        return self.stderr.read().decode(errors="replace").strip()

    def end_cause(self) -> str:
        """How it ended, for a message: "killed by SIGSEGV", "exit status 3"."""
        status = self.process.wait()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def child_environment() -> dict[str, str]:
    """This environment, with the project's packages importable and TensorFlow quiet."""
    search = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(search),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def start_child(module: str, arguments: Sequence[str] = ()) -> Child:
    """Starts `python -m module` with a pipe to it.

    The working directory is the root: packages called `graphs` or `rewrite` may lie in the
    user's own, and -P keeps Python from looking there.

    Args:
      module: its `main` calls `connect_to_parent` first.
      arguments: what follows the pipe and the parent's process id in its argv.
    """
    ours, theirs = Pipe(duplex=True)
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
    # The kernel's death signal comes when the starting *thread* ends, so only the main one
    # may ask for it; the end of the pipe says the same to a child started elsewhere.
    from_main = threading.current_thread() is threading.main_thread()
    parent = str(os.getpid()) if from_main else "0"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(theirs.fileno()), parent, *arguments],
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
    """In a child: ties its life to its parent's and opens the pipe.

    Returns:
      The pipe and the arguments that are the module's own.
    """
    descriptor, parent, *arguments = argv
    if int(parent):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it ended before the line above
            os._exit(1)
    return Connection(int(descriptor)), arguments

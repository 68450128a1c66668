"""Child processes: one way to start them, to talk to them and to end them.

A child is `python -P -m graphs.host.dies_with_parent PARENT_PID MODULE ARGUMENTS`. It leads a
session of its own, so that it gets no signals of the terminal, and it dies with the thread that
started it, even when that one is killed. One that needs TensorFlow is forked by `fork_server`
where that is possible, and dies with this process. We talk to it through an inherited pipe, in
messages that are pickled; its own end of that is `graphs.host.parent`.
"""

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from graphs.host.fork_server import ForkedProcess, ForkServer
from graphs.host.how_it_ended import cause_in, end_cause, file_tail
from graphs.host.op_libraries import VARIABLE, op_library_environment
from graphs.host.scratch import scratch_of_process
from graphs.protos import Pickled

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_LOOK_SECONDS = 0.5
_UNSERVED_SECONDS = 10.0
"""In which a child can say itself that another process is gone."""
_STACK_TRACE_BYTES = 20_000  # TensorFlow puts the trace of a failed check after what failed


def _always() -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Child:
    """A running child and what connects us with it.

    Attributes:
      process: the process.
      connection: our end of the pipe.
      stderr: the file that it writes its complaints to.
    """

    process: subprocess.Popen[bytes] | ForkedProcess
    connection: Connection
    stderr: IO[bytes]

    def ask(
        self, message: object, timeout_seconds: float, is_served: Callable[[], bool] = _always
    ) -> Pickled:
        """Sends a message and waits for the answer; raises as `receive` does."""
        try:
            self.connection.send(message)
        except ConnectionError:
            raise EOFError from None
        return self.receive(timeout_seconds, is_served)

    def receive(self, timeout_seconds: float, is_served: Callable[[], bool] = _always) -> Pickled:
        """The next message of the child.

        Args:
          is_served: whether all processes run that the child needs; it may wait for one that has
            ended until the time is over.

        Raises:
          TimeoutError: none came in time.
          EOFError: the child has ended, or is about to, or has waited in vain.
        """
        end, in_vain = time.monotonic() + timeout_seconds, False
        try:
            # In slices: a signal that comes just before a wait is heard only after it.
            while not self.connection.poll(min(_LOOK_SECONDS, max(0.0, end - time.monotonic()))):
                if time.monotonic() >= end:
                    raise EOFError if in_vain else TimeoutError
                if not in_vain and not is_served():
                    end, in_vain = min(end, time.monotonic() + _UNSERVED_SECONDS), True
            return self.connection.recv()
        except ConnectionError:
            raise EOFError from None

    def end(self) -> None:
        """Kills the child and waits for its end; harmless when it has ended already."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.stderr.close()

    def end_text(self) -> str:
        """How the child ended and its last words: "killed by SIGSEGV: it said nothing"."""
        return f"{end_cause(self.process.wait())}: {self.last_words()}"

    def last_words(self) -> str:
        """The line on stderr that tells best why the child ended."""
        return cause_in(file_tail(self.stderr, _STACK_TRACE_BYTES))


def start_child(
    module: str,
    arguments: Sequence[str] = (),
    directory: str = "/",
    environment: Mapping[str, str] | None = None,
    needs_tensorflow: bool = True,
) -> Child:
    """Starts `python -m module` with a pipe to it.

    Args:
      module: its `main` calls `connect_to_parent` first.
      arguments: what follows the pipe in its argv.
      needs_tensorflow: whether it imports TensorFlow, so that it is forked by a process that has.
    """
    ours, theirs = Pipe(duplex=True)
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
    environment = {**({} if needs_tensorflow else {VARIABLE: ""}), **(environment or {})}
    variables = {**child_environment(), **environment}
    server = _server_for(variables) if needs_tensorflow else None
    with theirs:
        if server is not None:
            with contextlib.suppress(ConnectionError):  # it was about to end
                pipes = theirs.fileno(), stderr.fileno()
                forked = server.fork(module, arguments, directory, variables, *pipes)
                return Child(forked, ours, stderr)
        process = start_process(
            module,
            [str(theirs.fileno()), *arguments],
            directory,
            environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[theirs.fileno()],
        )
    return Child(process, ours, stderr)


_server: ForkServer | None = None


def begin_to_fork() -> None:
    """Starts the process that forks children, which imports TensorFlow meanwhile."""
    _server_for(child_environment())


def _server_for(environment: Mapping[str, str]) -> ForkServer | None:
    """The server, started where there is none; None where a child has to be started anew.

    That is one which would import TensorFlow with other variables, or the first one where a thread
    asks that may end before others need a child: the server would end with it.
    """
    global _server
    if _server is None or not _server.is_own:
        if threading.current_thread() is not threading.main_thread():
            return None
        _server = ForkServer(start_process, child_environment())
    return _server if _server.can_fork(environment) else None


def start_process(
    module: str,
    arguments: Sequence[str] = (),
    directory: str = "/",
    environment: Mapping[str, str] | None = None,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Starts `python -m module ARGUMENTS` in a process that dies with the thread that calls this.

    Args:
      directory: the working directory; packages called `graphs` or `rewrite` may lie in the
        user's own, so that by default it is the root.
      environment: variables beside those of `child_environment`.
      **streams: stdout, stderr and pass_fds, as for subprocess.Popen.
    """
    # -P keeps Python from looking for packages in the working directory.
    tied = [sys.executable, "-P", "-m", "graphs.host.dies_with_parent", str(os.getpid())]
    return subprocess.Popen(
        [*tied, module, *arguments],
        cwd=directory,
        env={**child_environment(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **streams,
    )


def child_environment() -> dict[str, str]:
    """This environment, with the project's packages importable, TensorFlow quiet, and the op
    libraries named that this process has loaded."""
    search = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **op_library_environment(),
        "TMPDIR": scratch_of_process(os.getpid()),
        "PYTHONPATH": os.pathsep.join(search),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        # A process that takes all of a GPU's memory leaves nothing to the others.
        "TF_FORCE_GPU_ALLOW_GROWTH": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    }

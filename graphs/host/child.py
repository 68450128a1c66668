"""Child processes: one way to start them, to talk to them and to end them.

A child is `python -P -m graphs.host.dies_with_parent PARENT_PID MODULE ARGUMENTS`. It leads a
session of its own, so that it gets no signals of the terminal, and it dies with the thread that
started it, even when that one is killed. One that needs TensorFlow is forked by `fork_server`
where that is possible, and dies with this process. `start_child` and `ask_child` talk to it
through an inherited pipe, in messages that are pickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from graphs.host.fork_server import ForkedProcess, ForkServer

PROJECT_ROOT = Path(__file__).resolve().parents[2]
_TAIL_BYTES = 2000
_LOOK_SECONDS = 0.5
_PIPE_BYTES = 32_768
"""A pipe takes so much and more, though nobody reads it yet."""
_REQUEST = "request.pickle"
_STACK_TRACE_BYTES = 20_000  # TensorFlow puts the trace of a failed check after what failed
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")


class ChildError(Exception):
    """A child crashed, failed or took too long; the message says which.

    Attributes:
      last_message: the last that it sent before; None if it sent nothing.
      is_timeout: whether it took too long.
    """

    def __init__(self, message: str, last_message: Any = None, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.last_message = last_message
        self.is_timeout = is_timeout


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

    def ask(self, message: Any, timeout_seconds: float) -> Any:
        """Sends a message and waits for the answer; raises as `receive` does."""
        try:
            self.connection.send(message)
        except ConnectionError:
            raise EOFError from None
        return self.receive(timeout_seconds)

    def receive(self, timeout_seconds: float) -> Any:
        """The next message of the child.

        Raises:
          TimeoutError: none came in time.
          EOFError: the child has ended, or is about to.
        """
        end = time.monotonic() + timeout_seconds
        try:
            # In slices: a signal that comes just before a wait is heard only after it.
            while not self.connection.poll(min(_LOOK_SECONDS, max(0.0, end - time.monotonic()))):
                if time.monotonic() >= end:
                    raise TimeoutError
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


def cause_in(stderr: str) -> str:
    """The line that tells best why a process ended, of what it wrote to stderr.

    That is a failed check of C++, else the last exception of Python, else the last line. Where
    TensorFlow has a graph's execution fail, the exception has the op's own error further down,
    before the op's name in [[ ]].
    """
    said = [line.rstrip() for line in stderr.splitlines() if line.strip()]
    for line in said:
        if "Check failed" in line:
            return line.strip()
    raised = [i for i, line in enumerate(said) if _EXCEPTION.match(line)]
    if not raised:
        return said[-1].strip() if said else "it said nothing"
    for before, line in itertools.pairwise(said[raised[-1] :]):
        own, names_op, _ = line.partition("[[{{node")
        if names_op:
            return own.strip() or before.strip()
    return said[raised[-1]]


class _InFile:
    """What lies in a file, pickled: it is read and removed where this is received."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (self._path,)


def _read(path: str) -> Any:
    content = Path(path).read_bytes()
    os.unlink(path)
    return pickle.loads(content)


class AskedChild(contextlib.AbstractContextManager["AskedChild"]):
    """A child that gets one request and sends its answer; it ends with the block.

    It begins at once with what it does before it receives anything, such as its imports. It may
    send what it knows so far, too: its last message is the answer. It runs in an empty folder that
    goes with it.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Starts `python -m module`, whose `main` calls `connect_to_parent` first.

        Args:
          module: what runs.
          environment: as for `start_process`.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="tfplace_")
        try:
            self._child = start_child(module, (), self._folder.name, environment)
        except BaseException:
            self._folder.cleanup()
            raise

    def ask(self, request: Any) -> None:
        """Sends the request, which can be pickled, and doesn't wait until it is received.

        A long one lies in a file: the pipe would be full of it while the child still starts.
        """
        content = pickle.dumps(request)
        if len(content) > _PIPE_BYTES:
            path = Path(self._folder.name, _REQUEST)
            path.write_bytes(content)
            request = _InFile(str(path))
        with contextlib.suppress(ConnectionError):  # `answer` says how it ended
            self._child.connection.send(request)

    def answer(self, timeout_seconds: float) -> Any:
        """Waits for the child's end.

        Raises:
          ChildError: the child was killed, ended with another status than 0, sent nothing or took
            longer than that.
        """
        deadline = time.monotonic() + timeout_seconds
        answer = status = None
        child = self._child
        try:
            while True:
                answer = child.receive(deadline - time.monotonic())
        except TimeoutError:
            pass
        except EOFError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.process.wait(max(0.0, deadline - time.monotonic()))
        last_words = child.last_words()
        if status is None:
            raise ChildError(f"it took more than {timeout_seconds:g} s", answer, is_timeout=True)
        if status or answer is None:
            cause = f"it was {end_cause(status)}" if status < 0 else "it failed"
            raise ChildError(f"{cause}: {last_words}", answer)
        return answer

    @property
    def is_running(self) -> bool:
        """Whether it hasn't ended yet."""
        return self._child.process.poll() is None

    def close(self) -> None:
        """Kills the child where it still runs; may be called twice."""
        self._child.end()
        self._folder.cleanup()

    def __exit__(self, *error: object) -> None:
        self.close()


def ask_child(module: str, request: Any, timeout_seconds: float) -> Any:
    """Runs `python -m module`, which receives the request and sends its answer.

    Args:
      module: its `main` calls `connect_to_parent` first.
      request: what can be pickled.
      timeout_seconds: from the request to the end of the child, which is killed then.

    Raises:
      ChildError: see AskedChild.answer.
    """
    with AskedChild(module) as child:
        child.ask(request)
        return child.answer(timeout_seconds)


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
      directory: as for `start_process`.
      environment: as for `start_process`.
      needs_tensorflow: whether it imports TensorFlow, so that it is forked by a process that has.
    """
    ours, theirs = Pipe(duplex=True)
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
    variables = {**child_environment(), **(environment or {})}
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


def connect_to_parent(argv: Sequence[str]) -> tuple[Connection, Sequence[str]]:
    """In a child: opens the pipe.

    Returns:
      The pipe and the arguments that are the module's own.
    """
    descriptor, *arguments = argv
    return Connection(int(descriptor)), arguments


def start_process(
    module: str,
    arguments: Sequence[str] = (),
    directory: str = "/",
    environment: Mapping[str, str] | None = None,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Starts `python -m module ARGUMENTS` in a process that dies with the thread that calls this.

    Args:
      module: what runs.
      arguments: its argv.
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
    """This environment, with the project's packages importable and TensorFlow quiet."""
    search = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(search),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        # A process that takes all of a GPU's memory leaves nothing to the others.
        "TF_FORCE_GPU_ALLOW_GROWTH": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    }


def end_cause(status: int) -> str:
    """A returncode in words: "killed by SIGSEGV", "status 3"."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def file_tail(file: IO[bytes], num_bytes: int = _TAIL_BYTES, begin: int = 0) -> str:
    """The last bytes of a file, and none before `begin`, as text."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(begin, size - num_bytes))
    return file.read().decode(errors="replace")

"""Children that get one request and send one answer."""

import contextlib
import os
import pickle
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from graphs.host.child import start_child
from graphs.host.how_it_ended import end_cause
from graphs.host.parent import GaveUp, Limited
from graphs.host.scratch import scratch_directory
from graphs.protos import Pickled

_PIPE_BYTES = 32_768
"""A pipe takes so much and more, though nobody reads it yet."""
_REQUEST = "request.pickle"
_PROCESS = "graphs.host.answering"


class ChildError(Exception):
    """A child crashed, failed, or took too long or too much memory; the message says which.

    Attributes:
      last_message: the last that it sent before; None if it sent nothing.
      is_timeout: whether it took too long.
      gave_up: whether it took too much memory.
    """

    def __init__(
        self,
        message: str,
        last_message: Pickled = None,
        is_timeout: bool = False,
        gave_up: bool = False,
    ) -> None:
        super().__init__(message)
        self.last_message = last_message
        self.is_timeout = is_timeout
        self.gave_up = gave_up


class _InFile:
    """What lies in a file, pickled: it is read and removed where this is received."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _read, (self._path,)


def _read(path: str) -> Pickled:
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
        """Starts `graphs.host.answering`, and in it the module."""
        self._folder = scratch_directory()
        try:
            self._child = start_child(_PROCESS, (module,), self._folder.name, environment)
        except BaseException:
            self._folder.cleanup()
            raise

    def ask(self, request: object, memory_bytes: float | None = None) -> None:
        """Sends the request, which can be pickled, and doesn't wait until it is received.

        A long one lies in a file: the pipe would be full of it while the child still starts.
        """
        if memory_bytes is not None:
            request = Limited(request, memory_bytes)
        content = pickle.dumps(request)
        if len(content) > _PIPE_BYTES:
            path = Path(self._folder.name, _REQUEST)
            path.write_bytes(content)
            request = _InFile(str(path))
        with contextlib.suppress(ConnectionError):  # `answer` says how it ended
            self._child.connection.send(request)

    def answer(self, timeout_seconds: float) -> Pickled:
        """Waits for the child's end.

        Raises:
          ChildError: the child was killed, ended with another status than 0, sent nothing, took
            longer than that, or held more memory than it was asked to.
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
        if isinstance(answer, GaveUp):
            raise ChildError(answer.why, answer.last_message, gave_up=True)
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


def ask_child(
    module: str,
    request: object,
    timeout_seconds: float,
    memory_bytes: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pickled:
    """Runs a module in a child, which receives the request and sends its answer.

    Args:
      module: its `main` takes the `Parent`.
      request: what can be pickled.
      timeout_seconds: from the request to the end of the child, which is killed then.

    Raises:
      ChildError: see AskedChild.answer.
    """
    with AskedChild(module, environment) as child:
        child.ask(request, memory_bytes)
        return child.answer(timeout_seconds)

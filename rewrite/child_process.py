"""Work with TensorFlow's runtime in a child process: it may abort, hang or exhaust memory."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from graphs.host.child_process import (
    child_command,
    child_environment,
    end_cause,
    end_process,
    stderr_tail,
)


class ChildError(Exception):
    """The child crashed, failed or took too long; the message says which.

    Attributes:
      partial: what it had written until then; empty if nothing.
      is_timeout: whether it took too long.
    """

    def __init__(self, message: str, partial: Mapping[str, Any], is_timeout: bool = False):
        super().__init__(message)
        self.partial = partial
        self.is_timeout = is_timeout


def run_child(module: str, request: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """Runs `python -m module REQUEST RESULT`, both JSON files, away from the user's directory.

    The child dies with this process, also when that is killed.

    Args:
      module: its main reads the first file and writes the second.
      request: JSON values; big things go as paths.
      timeout_seconds: after this the child is killed.

    Returns:
      What the child wrote.

    Raises:
      ChildError: it ended with another status than 0, was killed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        asked, answered = Path(scratch, "request.json"), Path(scratch, "result.json")
        asked.write_text(json.dumps(request))
        with Path(scratch, "stderr").open("w+b") as stderr:
            process = subprocess.Popen(
                child_command(module, [str(asked), str(answered)]),
                cwd=scratch,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                end_process(process)
                message = f"it took more than {timeout_seconds:g} s"
                raise ChildError(message, _written(answered), is_timeout=True) from None
            finally:
                end_process(process)
            if status:
                cause = f"it was {end_cause(status)}" if status < 0 else "it failed"
                message = f"{cause}: {_last_words(stderr)}"
                raise ChildError(message, _written(answered))
        return _written(answered)


def write_result(path: str, result: Mapping[str, Any]) -> None:
    """In a child: writes its result, or what there is of it so far, at once or not at all."""
    aside = Path(path + ".new")
    aside.write_text(json.dumps(result))
    aside.rename(path)


def _written(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return result


def _last_words(stderr: IO[bytes]) -> str:
    spoken = [line.strip() for line in stderr_tail(stderr).splitlines() if line.strip()]
    return spoken[-1] if spoken else "it said nothing"

"""Work with TensorFlow's runtime in a child process: it may abort, hang or exhaust memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphs.child_process import child_environment

_STDERR_TAIL = 2000


class ChildError(Exception):
    """The child crashed, failed or took too long; the message says which.

    Attributes:
      partial: what it had written until then; empty if nothing.
    """

    def __init__(self, message: str, partial: Mapping[str, Any]):
        super().__init__(message)
        self.partial = partial


def run_child(module: str, request: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """Runs `python -m module REQUEST RESULT`, both JSON files, away from the user's directory.

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
                [sys.executable, "-P", "-m", module, str(asked), str(answered)],
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
                _end(process)
                message = f"it took more than {timeout_seconds:g} s"
                raise ChildError(message, _written(answered)) from None
            finally:
                _end(process)
            if status:
                message = f"{_cause(status)}: {_last_words(stderr)}"
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


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the child if it still runs: also when this process is interrupted."""
    if process.poll() is None:
        process.kill()
        process.wait()


def _cause(status: int) -> str:
    return f"it was killed by {signal.Signals(-status).name}" if status < 0 else "it failed"


def _last_words(stderr: Any) -> str:
    stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, stderr.tell() - _STDERR_TAIL))
    lines = [line.strip() for line in stderr.read().decode(errors="replace").splitlines()]
    spoken = [line for line in lines if line]
    return spoken[-1] if spoken else "it said nothing"

"""Keeps what TensorFlow's C++ writes to file descriptor 2 off a user's terminal.

TensorFlow 2.21 logs start-up lines before any of its environment variables or functions can stop
them. Python's own sys.stderr goes on writing where it always did.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from typing import IO

TAIL_BYTES = 2000
_NOISE = re.compile(
    r"[IW]\d{4} |WARNING: All log messages before|To enable the following instructions"
    r"|E\d{4} .*(cuInit|Unable to register cu|computation_placer)"
)


class NativeStderr:
    """From `divert` on, native lines go to a file that `tail` reads when something breaks."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def divert(self) -> None:
        """Sends descriptor 2 to a temporary file and sys.stderr to where descriptor 2 led."""
        try:
            terminal = os.dup(2)
        except OSError:  # started with a closed stderr: nothing to keep clean
            return
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        sys.stderr.flush()
        os.dup2(self._file.fileno(), 2)
        sys.stderr = os.fdopen(terminal, "w", buffering=1, encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """The end of what was diverted, without the lines that TensorFlow always writes."""
        if self._file is None:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        content = os.pread(self._file.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        lines = content.decode(errors="replace").splitlines()
        return "".join(f"{line}\n" for line in lines if line.strip() and not _NOISE.match(line))

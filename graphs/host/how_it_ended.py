"""How a process ended, by its status and by what it wrote to stderr."""

import itertools
import os
import re
import signal
from typing import IO

_TAIL_BYTES = 2000
_NOTE = re.compile(r"I\d{4,} |WARNING: All log messages before absl::InitializeLog")
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")


def cause_in(stderr: str) -> str:
    """The line that tells best why a process ended, of what it wrote to stderr.

    That is a failed check of C++, else the last exception of Python, else the last line. Where
    TensorFlow has a graph's execution fail, the exception has the op's own error further down,
    before the op's name in [[ ]].
    """
    lines = (line.rstrip() for line in stderr.splitlines())
    said = [line for line in lines if line and not _NOTE.match(line)]
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


def end_cause(status: int) -> str:
    """A returncode in words: "killed by SIGSEGV", "status 3"."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def file_tail(file: IO[bytes], num_bytes: int = _TAIL_BYTES, begin: int = 0) -> str:
    """The last bytes of a file, and none before `begin`, as text."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(begin, size - num_bytes))
    return file.read().decode(errors="replace")

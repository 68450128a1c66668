"""Keeps a user's terminal free of what TensorFlow writes there, as far as --verbosity wants it.

TensorFlow has two ways: Python's `logging`, and its C++ code, which writes to file descriptor 2.
"""

import io
import logging
import os
import re
import sys
import tempfile
from typing import IO, TYPE_CHECKING, TextIO

LOUD = 2  # the --verbosity from which on TensorFlow's own lines are shown
TAIL_BYTES = 2000
_NOISE = re.compile(
    r"[IW]\d{4} |WARNING: All log messages before|To enable the following instructions"
    r"|E\d{4} .*(cuInit|Unable to register cu|computation_placer)"
)
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class LogLines(logging.Handler):
    """Prints log records as lines on stderr; looks up sys.stderr each time, as it may change."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"tfplace: {record.getMessage()}", file=sys.stderr, flush=True)


def quiet_tensorflow(verbosity: int) -> None:
    """Sets the loggers and TensorFlow's environment; call it before TensorFlow is imported.

    Args:
      verbosity: below 0 shows errors, 0 warnings too, 1 all log lines of tfplace, LOUD all.
    """
    # Whatever this process does on a GPU must leave memory to the process that measures.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if verbosity < LOUD:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GLOG_minloglevel", "3")
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    level = logging.INFO if verbosity > 0 else logging.ERROR if verbosity < 0 else logging.WARNING
    for package in ("graphs", "rewrite", "tfplace"):
        logger = logging.getLogger(package)
        logger.handlers = [LogLines()]
        logger.setLevel(level)


class NativeStderr:
    """From `divert` on, lines of C++ code go to a file, which `tail` reads when something breaks.

    TensorFlow 2.21 writes lines at its start before any variable or function can stop them.
    Python's own sys.stderr goes on writing where it always did.
    """

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
        sys.stderr = text_stream(Unheard(terminal, OSError), "utf-8")

    def tail(self) -> str:
        """The end of what was diverted, without the lines that TensorFlow always writes."""
        if self._file is None:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        content = os.pread(self._file.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        lines = content.decode(errors="replace").splitlines()
        return "".join(f"{line}\n" for line in lines if line.strip() and not _NOISE.match(line))


class Unheard(io.FileIO):
    """A descriptor to write to; what can't be written for a reason of one kind is dropped."""

    def __init__(self, descriptor: int, dropped_for: type[OSError]) -> None:
        """The descriptor stays open."""
        super().__init__(descriptor, "w", closefd=False)
        self._dropped_for = dropped_for

    def write(self, content: "ReadableBuffer") -> int:
        try:
            return super().write(content)
        except self._dropped_for:
            return memoryview(content).nbytes


def take_streams_as_they_are() -> None:
    """Makes sys.stdout and sys.stderr such that who reads them doesn't change how a command ends.

    Closed ones take what is written nowhere, and so does standard output that nobody reads to its
    end (`| head`), and standard error that can't be written. What their encoding lacks is written
    escaped. A full disk below standard output remains an error: the result is lost.
    """
    for name, dropped_for in (("stdout", BrokenPipeError), ("stderr", OSError)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            is_by_line = stream.line_buffering or stream.write_through
            raw = Unheard(stream.fileno(), dropped_for)
            setattr(sys, name, text_stream(raw, stream.encoding, is_by_line))


def text_stream(raw: Unheard, encoding: str, is_by_line: bool = True) -> TextIO:
    """A stream of text; what the encoding lacks is written escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=is_by_line
    )

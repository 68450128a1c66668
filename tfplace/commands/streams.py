"""Standard output and error, whoever reads them, or nobody."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Unheard(io.FileIO):
    """A descriptor to write to; what can't be written for a reason of one kind is dropped."""

    def __init__(self, descriptor: int, dropped_for: type[OSError]) -> None:
        """The descriptor stays open."""
        super().__init__(descriptor, "w", closefd=False)
        self._dropped_for = dropped_for

    def write(self, content: ReadableBuffer) -> int:
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

"""Keeps what C libraries print out of a command's result."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator

STDOUT = 1
_ONE_AT_A_TIME = threading.RLock()
"""Two threads that did this at once would leave standard output closed for good."""


@contextlib.contextmanager
def silenced_stdout() -> Iterator[None]:
    """Drops what C code prints on standard output meanwhile, also what it has not flushed yet.

    METIS complains there of graphs with few vertices, in the middle of a JSON object.
    """
    with _ONE_AT_A_TIME:
        flush = ctypes.CDLL(None).fflush
        try:
            kept = os.dup(STDOUT)
        except OSError:  # there is none
            yield
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        flush(None)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT)
        try:
            yield
        finally:
            flush(None)
            os.dup2(kept, STDOUT)
            os.close(nowhere)
            os.close(kept)

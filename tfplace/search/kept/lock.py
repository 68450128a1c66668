"""A folder that only one process at a time works in; the kernel frees it however that one ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from graphs.errors import OutputError

LOCK_FILE = ".lock"


@contextlib.contextmanager
def locked_folder(folder: Path, doing: str, flag: str) -> Iterator[None]:
    """Makes the folder and holds it.

    Args:
      folder: where.
      doing: "writing the batch to x", the beginning of a message.
      flag: that names another folder.

    Raises:
      OutputError: it can't be written, or another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(f"{doing}: {error.strerror}; give another {flag}") from None
    try:
        with contextlib.suppress(OSError):  # a file system without locks has nobody to wait for
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"{doing}: another process of tfplace is at work there; wait for its end, or "
                    f"give another {flag}"
                ) from None
        yield
    finally:
        os.close(lock)

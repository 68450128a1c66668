"""Memory that was freed goes back to the system, where other processes of this run need it."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Has the C library return what was freed; where it has no call for that, nothing happens.

    It keeps what lies between pieces that are still used, and most of large graphs does.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

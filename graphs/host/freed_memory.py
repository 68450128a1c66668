"""Freed memory given back to the system, and no collection while much is read."""

import contextlib
import ctypes
import gc
from collections.abc import Iterator


def give_back() -> None:
    """Has the C library return what was freed; where it has no call for that, nothing happens.

    It keeps what lies between pieces that are still used, and most of large graphs does.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """The collector looks at no object inside: reading 170,000 ops takes a quarter less.

    Whatever the caller had switched off stays off.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

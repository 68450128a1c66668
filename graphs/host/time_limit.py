"""Ends what may take for ever, such as regular expressions that somebody else wrote."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class OutOfTimeError(Exception):
    """The block under a time limit was not done in time."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTimeError inside the block once it has computed for `seconds`.

    This process's own time counts, so that a machine that is busy or a process that is stopped
    changes nothing. Python can be interrupted so in the main thread only; elsewhere there is no
    limit. `re` looks for signals while it matches; most native code doesn't.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise OutOfTimeError

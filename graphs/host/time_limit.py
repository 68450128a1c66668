"""Ends what may take for ever, such as regular expressions that somebody else wrote."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

_of_thread = threading.local()


class OutOfTimeError(Exception):
    """The block under a time limit was not done in time."""


@contextlib.contextmanager
def ending_at(moment: float) -> Iterator[None]:
    """Lets `require_time` end what this thread does inside, after a moment of time.monotonic()."""
    before = getattr(_of_thread, "end", math.inf)
    _of_thread.end = min(before, moment)
    try:
        yield
    finally:
        _of_thread.end = before


def require_time() -> None:
    """Called now and then by what may take long: raises OutOfTimeError where it should be over."""
    if time.monotonic() > getattr(_of_thread, "end", math.inf):
        raise OutOfTimeError


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

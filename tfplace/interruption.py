"""Ctrl-C and SIGTERM: the first asks for what is known so far, the second gives up.

A block of code runs in one of two modes. Under `held`, the first signal is only noted. Under
`raising`, it raises `Interrupted` at once, which is caught by a caller that can go on without the
block's result. The second signal raises a plain KeyboardInterrupt in either mode; later ones are
ignored, so that nothing disturbs the cleaning up.
"""

import atexit
import contextlib
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Generic, TypeVar

from graphs.host.time_limit import OutOfTimeError, ending_at

Result = TypeVar("Result")
_LOOK_SECONDS = 0.1
LAST_SECONDS = 20.0
"""The longest that the process's end waits for work whose own time is over."""
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The first Ctrl-C or SIGTERM: end what you do, keep what is known."""


@atexit.register
def _wait_for_threads() -> None:
    """Lets work that nobody waits for any more end: Python kills what is inside of TensorFlow with
    the whole process."""
    end = time.monotonic() + LAST_SECONDS
    for thread in list(_threads):
        thread.join(max(end - time.monotonic(), 0.0))


class InThread(Generic[Result]):
    """Work in a thread that ends with the process."""

    def __init__(self, work: Callable[[], Result], seconds: float = math.inf) -> None:
        """Begins it; what calls `require_time` ends by itself after so many seconds."""
        self._end = time.monotonic() + seconds
        self._found: list[Result] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        if math.isfinite(seconds):
            _threads.add(self._thread)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still goes on."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Waits for its end, but not longer."""
        self._thread.join(seconds)

    def result(self, otherwise: Result) -> Result:
        """What it found, or raised; `otherwise` as long as it goes on."""
        if self._error is not None:
            raise self._error
        return self._found[0] if self._found else otherwise

    def _run(self, work: Callable[[], Result]) -> None:
        try:
            with contextlib.suppress(OutOfTimeError), ending_at(self._end):
                self._found.append(work())
        except Exception as error:
            self._error = error


class Interruption:
    """What signals have come, and whether the first one ends the running work."""

    def __init__(self) -> None:
        self.is_to_end = False  # SIGTERM came
        self._num_signals = 0
        self._is_raising = True

    @property
    def seen(self) -> bool:
        """Whether a signal has come."""
        return self._num_signals > 0

    def note(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self._num_signals += 1
        self.is_to_end |= signum == signal.SIGTERM
        if self._num_signals == 1 and self._is_raising:
            raise Interrupted
        if self._num_signals == 2:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The first signal inside is only noted."""
        with self._mode(False):
            yield

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """The first signal inside raises Interrupted; so does entering after it."""
        with self._mode(True):
            if self.seen:
                raise Interrupted
            yield

    def unless_seen(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """What `work` returns; `otherwise` where a signal came before its end."""
        try:
            with self.raising():
                return work()
        except Interrupted:
            return otherwise

    def unless_seen_in_time(
        self, work: Callable[[], Result], otherwise: Result, seconds: float
    ) -> Result:
        """The same for compiled code, which no signal can interrupt: it runs in a thread.

        After a signal, or so many seconds, the thread is no longer waited for.
        """
        return self.unless_seen_by(InThread(work, seconds), otherwise, seconds)

    def unless_seen_by(self, begun: InThread[Result], otherwise: Result, seconds: float) -> Result:
        """The same for work that a thread has begun already; waits so many seconds from now."""
        end = time.monotonic() + seconds
        with contextlib.suppress(Interrupted), self.raising():
            while begun.is_alive() and time.monotonic() < end:
                begun.wait(_LOOK_SECONDS)  # a signal just before a wait doesn't end that
        return otherwise if self.seen else begun.result(otherwise)

    @contextlib.contextmanager
    def _mode(self, is_raising: bool) -> Iterator[None]:
        before, self._is_raising = self._is_raising, is_raising
        try:
            yield
        finally:
            self._is_raising = before


_running: list[Interruption] = []


@contextlib.contextmanager
def interruptible(hands_on: bool = False) -> Iterator[Interruption]:
    """Signals go to the Interruption while inside; contexts inside one another share one.

    In another thread than the main one, signals go elsewhere and none is ever seen.

    Args:
      hands_on: whether SIGTERM ends, or reaches the handler of, a program that called this, after
        this: whoever sent it would otherwise wait for that end.
    """
    if _running:
        yield _running[-1]
        return
    interruption = Interruption()
    before = {}
    try:
        for number in SIGNALS:
            before[number] = signal.signal(number, interruption.note)
    except ValueError:  # not the main thread
        yield interruption
        return
    _running.append(interruption)
    try:
        yield interruption
    finally:
        _running.remove(interruption)
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if hands_on and interruption.is_to_end:
            signal.raise_signal(signal.SIGTERM)

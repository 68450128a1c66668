"""How long each phase of a run takes, in seconds of wall time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

PHASES = ("start", "read", "price", "compile", "search", "measure", "write", "prove", "report")
"""In the order in which a run comes to them; one that is not needed takes no time."""


class Phases:
    """A clock that always runs for one phase: for "start" at first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begins with "start".

        Args:
          now: seconds since whenever.
        """
        self._now = now
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase, self._since = PHASES[0], now()

    def begin(self, phase: str) -> None:
        """The running phase ends and another one of PHASES begins, or goes on."""
        now = self._now()
        self._seconds[self._phase] += now - self._since
        if phase not in self._seconds:
            raise ValueError(f"timing {phase!r}: there is no such phase; wanted one of {PHASES}")
        self._phase, self._since = phase, now

    def seconds(self) -> Mapping[str, float]:
        """{phase: seconds} of all PHASES, until now."""
        self.begin(self._phase)
        return dict(self._seconds)

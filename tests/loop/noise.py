"""Another program that takes a share of one core, at random: `python -m tests.loop.noise 0.3`."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence

from graphs.host.child import start_child
from graphs.host.parent import connect_to_parent

_BURST_SECONDS = 0.05
"""The mean of its bursts; they and the pauses between them are exponentially distributed."""


@contextlib.contextmanager
def noise(share: float) -> Iterator[None]:
    """Runs it beside the block; nothing where share is 0."""
    if share == 0.0:
        yield
        return
    child = start_child("tests.loop.noise", [str(share)])
    try:
        yield
    finally:
        child.end()


def bursts(share: float, rng: random.Random) -> Iterator[tuple[float, float]]:
    """Seconds of work and of the pause that follows, without end."""
    while True:
        pause = _BURST_SECONDS * (1.0 - share) / share
        yield rng.expovariate(1.0 / _BURST_SECONDS), rng.expovariate(1.0 / pause) if pause else 0.0


def main(argv: Sequence[str]) -> None:
    """Works and pauses on the last core until the parent closes the pipe."""
    connection, (share,) = connect_to_parent(argv)
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    for work, pause in bursts(float(share), random.Random(0)):
        end = time.process_time() + work
        while time.process_time() < end:
            pass
        if connection.poll(pause):
            return


if __name__ == "__main__":
    main(sys.argv[1:])

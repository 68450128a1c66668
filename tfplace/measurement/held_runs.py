"""Runs that stay prepared in a child from one measurement to the next."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Mapping

from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.training_run import PreparedRun, ReleaseRequest, TrainingRun

RELEASE_SECONDS = 60.0

Key = tuple[bytes, tuple[str, ...], int]
"""A graph, what is fetched of it, and the number of the run among equal ones of a measurement."""


def keys_of(graphs: Mapping[str, bytes], runs: Mapping[str, TrainingRun]) -> dict[str, Key]:
    """{name: key} of a measurement's runs; a graph may hold a split and an unsplit step."""
    count: collections.Counter[tuple[bytes, tuple[str, ...]]] = collections.Counter()
    keys = {}
    for name, graph in graphs.items():
        same = graph, tuple(runs[name].fetches)
        keys[name] = *same, count[same]
        count[same] += 1
    return keys


class HeldRuns(contextlib.AbstractContextManager["HeldRuns"]):
    """What a measuring process holds, by graph; all of it is gone when the process ends.

    Attributes:
      process: runs them; the context manager ends it.
    """

    def __init__(self, process: MeasuringProcess, capacity: int = 1_000_000) -> None:
        """Holds nothing yet.

        Args:
          process: where they run.
          capacity: how many are held beside those of the measurement that is made.
        """
        self.process = process
        self._capacity = capacity
        self._numbers = itertools.count()
        self._slots: dict[Key, int] = {}
        self._runs: dict[Key, PreparedRun] = {}

    def slot(self, key: Key) -> int:
        """The number by which requests name the graph's run."""
        if key not in self._slots:
            self._slots[key] = next(self._numbers)
        return self._slots[key]

    def known(self, key: Key, through: str) -> PreparedRun | None:
        """The run if it is prepared, the way that is wanted."""
        if not self.process.alive:
            self._runs.clear()
        run = self._runs.get(key)
        return run if run is not None and through in ("auto", run.through) else None

    def note(self, key: Key, run: PreparedRun) -> None:
        """The graph's run is prepared now."""
        self._runs[key] = run

    def release(self, key: Key, timeout_seconds: float = RELEASE_SECONDS) -> None:
        """Gives back what the run holds."""
        self._runs.pop(key, None)
        if self.process.alive:
            self.process.request(ReleaseRequest(self.slot(key)), timeout_seconds)

    def make_room(self, wanted: set[Key]) -> None:
        """Releases the runs that are not wanted, the oldest first, until the others fit."""
        others = [key for key in self._runs if key not in wanted]
        excess = len(self._runs.keys() | wanted) - self._capacity
        for key in others[: max(excess, 0)]:
            self.release(key)

    def __exit__(self, *error: object) -> None:
        self.process.__exit__(*error)

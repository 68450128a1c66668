"""Runs that stay prepared in a child from one measurement to the next."""

import collections
import contextlib
import itertools
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from graphs.errors import ClusterError
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.training_run import (
    PreparedRun,
    PrepareRequest,
    ReleaseRequest,
    TrainingRun,
)

RELEASE_SECONDS = 60.0
AHEAD_SECONDS = 60.0
"""The longest that preparing a run ahead of a measurement may take."""

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
      begun: what tells the runs apart that were begun to be prepared ahead of a measurement.
    """

    def __init__(self, process: MeasuringProcess, capacity: int = 1_000_000) -> None:
        """Holds nothing yet."""
        self.process = process
        self._capacity = capacity
        self._slots: dict[Key, int] = collections.defaultdict(itertools.count().__next__)
        self._runs: dict[Key, PreparedRun] = {}
        self.begun: set[Hashable] = set()
        # A child ends with the thread that started it: this one lasts as long as the process here.
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._preparing: list[Future[None]] = []

    def begin(
        self, tag: Hashable, graph: Callable[[], GraphDef], run: TrainingRun, seed: int
    ) -> None:
        """Prepares a run in a thread, after those begun before, unless there is no room for it.

        What fails is tried again, and told, by the measurement that needs it.

        Args:
          tag: tells the run apart.
          graph: makes the GraphDef with devices.
          seed: of the values of variables that nothing initialises.
        """
        if tag in self.begun or len(self.begun) >= self._capacity:
            return
        self.begun.add(tag)

        def prepare() -> None:
            text = graph().SerializeToString()
            key = keys_of({"": text}, {"": run})[""]
            request = PrepareRequest(self.slot(key), text, run, seed=seed)
            with contextlib.suppress(ClusterError):
                answer = self.process.request(request, AHEAD_SECONDS)
                if not isinstance(answer, Infeasible):
                    self.note(key, answer)

        self._preparing.append(self._thread.submit(prepare))

    def wait(self) -> None:
        """Until nothing is being prepared: the process answers one request at a time."""
        while self._preparing:
            self._preparing.pop().result()

    def slot(self, key: Key) -> int:
        """The number by which requests name the graph's run."""
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
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.process.__exit__(*error)

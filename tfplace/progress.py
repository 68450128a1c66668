"""What a user sees while work goes on: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from tfplace.search.search import Progress as SearchProgress
from tfplace.units_text import seconds_text

LINE_EVERY_SECONDS = 10.0


class Watch:
    """Says nothing; the base of those that do."""

    def stage(self, sentence: str) -> None:
        """A new stage of the work begins."""

    def search(self, progress: SearchProgress) -> None:
        """The search has gone on."""

    @contextlib.contextmanager
    def searching(self, budget_seconds: float) -> Iterator[None]:
        """Around a search of at most that long."""
        yield


class LineWatch(Watch):
    """A line on stderr for each stage, and now and then for the search."""

    def __init__(self) -> None:
        self._last = -LINE_EVERY_SECONDS

    def stage(self, sentence: str) -> None:
        print(f"tfplace: {sentence}", file=sys.stderr, flush=True)

    def search(self, progress: SearchProgress) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_SECONDS:
            self._last = now
            self.stage(f"{progress.seconds:5.1f} s {_search_text(progress)}")


class BarWatch(Watch):
    """A bar with time left and the best step time so far, for terminals."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def stage(self, sentence: str) -> None:
        self._console.print(Text(sentence, style="dim"))

    def search(self, progress: SearchProgress) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=progress.seconds, description=_search_text(progress)
            )

    @contextlib.contextmanager
    def searching(self, budget_seconds: float) -> Iterator[None]:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("searching", total=budget_seconds)
            yield
        self._bar = self._task = None


def watch_for(verbosity: int) -> Watch:
    """The watch that fits stderr: silent with verbosity below 0."""
    if verbosity < 0:
        return Watch()
    return BarWatch() if sys.stderr.isatty() else LineWatch()


def _search_text(progress: SearchProgress) -> str:
    return (
        f"{progress.stage}: {progress.num_trials:,} trials, "
        f"best {seconds_text(progress.best_step_seconds)}"
    )

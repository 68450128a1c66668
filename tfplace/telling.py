"""What the longer commands tell on stderr besides `optimize`: sentences, and how long it takes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text


class Teller:
    """Says nothing; the base of those that do."""

    def __call__(self, sentence: str) -> None:
        """Something worth a line has happened."""

    def part(self, done: int, total: int) -> None:
        """So many of so many equal parts are done."""


class LineTeller(Teller):
    """A line for each sentence."""

    def __call__(self, sentence: str) -> None:
        print(f"tfplace: {sentence}", file=sys.stderr, flush=True)


class ClockTeller(Teller):
    """For terminals: the sentences, and below them what time is left."""

    def __init__(self, budget_seconds: float | None, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), _Clock(budget_seconds))
        self.progress = Progress(*columns, console=console, transient=True)
        self._task = self.progress.add_task("working", total=None)

    def __call__(self, sentence: str) -> None:
        self.progress.console.print(Text(sentence, style="dim"))

    def part(self, done: int, total: int) -> None:
        self.progress.update(
            self._task, completed=done, total=total, description=f"{done:,} of {total:,}"
        )


@contextlib.contextmanager
def telling(verbosity: int, budget_seconds: float | None = None) -> Iterator[Teller]:
    """The teller that fits stderr, silent with verbosity below 0.

    Args:
      verbosity: as --verbosity.
      budget_seconds: how long the work takes at most, where that is known; otherwise the time
        left is estimated from the parts that are done.
    """
    if verbosity < 0:
        yield Teller()
    elif sys.stderr.isatty():
        teller = ClockTeller(budget_seconds, Console(stderr=True, highlight=False))
        with teller.progress:
            yield teller
    else:
        yield LineTeller()


class _Clock(ProgressColumn):
    """The time left, or, where nobody knows, the time since the beginning."""

    def __init__(self, budget_seconds: float | None) -> None:
        super().__init__()
        self._budget_seconds = budget_seconds

    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        if self._budget_seconds is not None:
            left = self._budget_seconds - elapsed
            return Text(f"{clock_text(left)} left" if left > 0 else "finishing")
        if task.total and task.completed:
            left = elapsed * (task.total - task.completed) / task.completed
            return Text(f"about {clock_text(left)} left")
        return Text(clock_text(elapsed))


def clock_text(seconds: float) -> str:
    """61.0 -> "1:01"; never less than "0:00"."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"

"""What a person sees on stderr while a command works: a live line on a terminal, or plain lines."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

from graphs.counted import counted
from tfplace.search.search import SearchMoment
from tfplace.units_text import seconds_text

LINE_EVERY_SECONDS = 10.0


class Progress:
    """Shows nothing; the base of those that do."""

    def say(self, sentence: str) -> None:
        """A new stage of the work begins, or something else worth a line has happened."""

    def part(self, done: int, total: int) -> None:
        """`done` of `total` equal parts of the work are done."""

    def search(self, moment: SearchMoment) -> None:
        """The search has gone on."""

    @contextlib.contextmanager
    def working(self, budget_seconds: float | None = None) -> Iterator[None]:
        """Around work that takes at most `budget_seconds`; None where nobody knows."""
        yield


class LineProgress(Progress):
    """A line for each sentence, and one every LINE_EVERY_SECONDS while a search runs."""

    def __init__(self) -> None:
        self._last_line_at = -LINE_EVERY_SECONDS

    def say(self, sentence: str) -> None:
        print(f"tfplace: {sentence}", file=sys.stderr, flush=True)

    def search(self, moment: SearchMoment) -> None:
        now = time.monotonic()
        if now - self._last_line_at >= LINE_EVERY_SECONDS:
            self._last_line_at = now
            self.say(f"{moment.seconds:5.1f} s {_search_text(moment)}")


class TerminalProgress(Progress):
    """The sentences, and below them, while work goes on, a line with the time that is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: rich_progress.Progress | None = None
        self._task = rich_progress.TaskID(0)

    def say(self, sentence: str) -> None:
        self._console.print(Text(sentence, style="dim"))

    def part(self, done: int, total: int) -> None:
        self._update(done, total, f"{done:,} of {total:,}")

    def search(self, moment: SearchMoment) -> None:
        self._update(moment.seconds, None, _search_text(moment))

    @contextlib.contextmanager
    def working(self, budget_seconds: float | None = None) -> Iterator[None]:
        columns = (
            rich_progress.SpinnerColumn(),
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            _Clock(budget_seconds),
        )
        with rich_progress.Progress(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("working", total=budget_seconds)
            try:
                yield
            finally:
                self._bar = None

    def _update(self, completed: float, total: float | None, description: str) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task, completed=completed, total=total, description=description, refresh=True
            )


def progress_for(verbosity: int) -> Progress:
    """What fits stderr; nothing is shown with a verbosity below 0."""
    if verbosity < 0:
        return Progress()
    if sys.stderr.isatty():
        return TerminalProgress(Console(stderr=True, highlight=False))
    return LineProgress()


class _Clock(rich_progress.ProgressColumn):
    """The time left, or, where nobody knows, the time since the beginning."""

    def __init__(self, budget_seconds: float | None) -> None:
        super().__init__()
        self._budget_seconds = budget_seconds

    def render(self, task: rich_progress.Task) -> Text:
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


def _search_text(moment: SearchMoment) -> str:
    return (
        f"{moment.stage}: {counted(moment.num_trials, 'trial')}, "
        f"best {seconds_text(moment.best_step_seconds)}"
    )


PHASES = ("start", "read", "price", "compile", "search", "measure", "write", "prove", "report")
"""In the order in which a run comes to them; one that is not needed takes no time."""


class Phases:
    """A clock that always runs for one phase: for "start" at first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begins with "start", so many seconds since whenever."""
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

    def total(self) -> float:
        """Seconds of all phases together, until now."""
        return sum(self.seconds().values())

    def seconds(self) -> Mapping[str, float]:
        """{phase: seconds} of all PHASES, until now."""
        self.begin(self._phase)
        return dict(self._seconds)

"""The states of a batch's jobs while it runs: a live table on terminals, lines elsewhere."""

import collections
import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from graphs.counted import counted
from tfplace.runs.batch.run_jobs import Listener
from tfplace.runs.batch.summary import JobRow
from tfplace.units_text import seconds_text

MOST_ROWS = 20
_STYLES = {"waiting": "dim", "running": "bold cyan", "done": "green", "failed": "bold red"}
_MOST_INTERESTING_FIRST = ("running", "failed", "waiting", "done")


def listener_for(verbosity: int) -> Listener:
    """What fits stderr; nothing is shown with a verbosity below 0."""
    if verbosity < 0:
        return Listener()
    return TableListener() if sys.stderr.isatty() else LineListener()


class LineListener(Listener):
    """A line on stderr when a job begins and when it has ended."""

    @contextlib.contextmanager
    def watching(self, rows: Sequence[JobRow]) -> Iterator[None]:
        jobs = counted(len(rows), "job")
        _print_line(f"{jobs}, {sum(row.was_done for row in rows)} of them done before")
        for row in rows:
            if row.job.error:
                _print_line(f"line {row.job.line_number} can't run: {row.job.error}")
            for sentence in row.job.notes:
                _print_line(sentence)
        yield

    def change(self, row: JobRow, num_ended: int, num_jobs: int) -> None:
        name, state, took, sentence = row.cells()
        if state == "running":
            again = f", attempt {row.state.attempts}" if row.state.attempts > 1 else ""
            _print_line(f"{name} begins{again}")
        else:
            outcome = f": {sentence}" if sentence else ""
            _print_line(f"{num_ended}/{num_jobs} {name} {state} in {took}{outcome}")


class TableListener(Listener):
    """A table that changes in place, for terminals."""

    @contextlib.contextmanager
    def watching(self, rows: Sequence[JobRow]) -> Iterator[None]:
        console = Console(stderr=True, highlight=False)
        draw = functools.partial(live_table, rows)
        with Live(console=console, get_renderable=draw, refresh_per_second=2, transient=True):
            for row in rows:
                for sentence in row.job.notes:
                    console.print(Text(f"tfplace: {sentence}", style="dim"))
            yield


def live_table(rows: Sequence[JobRow]) -> Table:
    """The most interesting jobs: those that run or failed, then those to come, then others."""
    rows = list(rows)  # other threads change what was given
    states: list[str] = [row.state.state for row in rows]
    ranked = sorted(range(len(rows)), key=lambda i: (_MOST_INTERESTING_FIRST.index(states[i]), i))
    table = _table([rows[index] for index in sorted(ranked[:MOST_ROWS])], is_live=True)
    counts = collections.Counter(states)
    table.title = ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])
    table.title_justify = "left"
    if len(rows) > MOST_ROWS:
        table.add_row(f"… {len(rows) - MOST_ROWS} more", "", "", "")
    return table


def final_table(rows: Sequence[JobRow]) -> Table:
    """All jobs, when the batch has ended."""
    return _table(rows, is_live=False)


def _table(rows: Sequence[JobRow], is_live: bool) -> Table:
    columns = [Column(name, no_wrap=is_live) for name in ("job", "state", "took", "found")]
    columns[2].justify = "right"
    if is_live:
        columns[2].header = "time"
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        name, state, took, sentence = row.cells()
        if is_live and row.began is not None:
            took = seconds_text(time.monotonic() - row.began)
        table.add_row(Text(name), Text(state, _STYLES[state]), took, Text(sentence))
    return table


def _print_line(sentence: str) -> None:
    print(f"tfplace: {sentence}", file=sys.stderr, flush=True)

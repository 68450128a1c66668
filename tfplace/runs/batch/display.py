"""The states of a batch's jobs while it runs: a live table on terminals, lines elsewhere."""

from __future__ import annotations

import collections
import sys
import threading
import time
from collections.abc import Sequence
from typing import get_args

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tfplace.runs.batch.job_state import State
from tfplace.runs.batch.run_jobs import Listener
from tfplace.runs.batch.summary import JobRow
from tfplace.units_text import seconds_text

MOST_ROWS = 20
STYLES = {"waiting": "dim", "running": "bold cyan", "done": "green", "failed": "bold red"}
_IMPORTANCE = {"running": 0, "failed": 1, "waiting": 2, "done": 3}


class LineListener(Listener):
    """A line on stderr when a job begins and when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_jobs = self._num_ended = 0

    def begin(self, rows: Sequence[JobRow]) -> None:
        ended = [row for row in rows if row.state.state in ("done", "failed")]
        self._num_jobs, self._num_ended = len(rows), len(ended)
        before = sum(row.was_done for row in rows)
        _line(f"{len(rows)} jobs, {before} of them done before")
        for row in rows:
            if row.job.error:
                _line(f"line {row.job.line_number} can't run: {row.job.error}")

    def change(self, index: int, row: JobRow) -> None:
        state = row.state.state
        with self._lock:
            if state == "running":
                again = f", attempt {row.state.attempts}" if row.state.attempts > 1 else ""
                _line(f"{row.job.name} begins{again}")
                return
            self._num_ended += 1
            found = f": {row.sentence()}" if row.sentence() else ""
            took = seconds_text(row.state.seconds)
            _line(f"{self._num_ended}/{self._num_jobs} {row.job.name} {state} in {took}{found}")


class TableListener(Listener):
    """A table that changes in place, for terminals."""

    def __init__(self, console: Console | None = None) -> None:
        self._lock = threading.Lock()
        self._rows: list[JobRow] = []
        self._began: dict[int, float] = {}
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, get_renderable=self.table, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> TableListener:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def begin(self, rows: Sequence[JobRow]) -> None:
        with self._lock:
            self._rows = list(rows)

    def change(self, index: int, row: JobRow) -> None:
        with self._lock:
            self._rows[index] = row
            if row.state.state == "running":
                self._began[index] = time.monotonic()

    def table(self) -> Table:
        """The most interesting jobs: those that run or failed, then those to come, then others."""
        with self._lock:
            rows, began = list(self._rows), dict(self._began)
        counts = collections.Counter(row.state.state for row in rows)
        title = ", ".join(f"{counts[state]} {state}" for state in get_args(State) if counts[state])
        table = Table(title=title, box=None, pad_edge=False, title_justify="left")
        for heading, justify in (("job", "left"), ("state", "left"), ("time", "right")):
            table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        table.add_column("found", no_wrap=True, overflow="ellipsis")
        ranked = sorted(range(len(rows)), key=lambda i: (_IMPORTANCE[rows[i].state.state], i))
        for index in sorted(ranked[:MOST_ROWS]):
            row = rows[index]
            state = row.state.state
            runs = time.monotonic() - began.get(index, 0.0) if state == "running" else None
            took = seconds_text(row.state.seconds if runs is None else runs)
            table.add_row(row.job.name, Text(state, STYLES[state]), took, Text(row.sentence()))
        if len(rows) > MOST_ROWS:
            table.add_row(f"… {len(rows) - MOST_ROWS} more", "", "", "")
        return table


def _line(sentence: str) -> None:
    print(f"tfplace: {sentence}", file=sys.stderr, flush=True)

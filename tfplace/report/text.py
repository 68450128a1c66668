"""What all printed answers share: the console, facts and tables, at 80 columns."""

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 80
_TRAILING = re.compile(r"[ \t]+(?=\n)")


def console() -> Console:
    """Standard output; colours only on a terminal and without NO_COLOR.

    Names come from models: nothing in them is markup (`[bold]`) or an emoji (`:cat:`).
    """
    terminal = Console(
        highlight=False, markup=False, emoji=False, no_color=bool(os.environ.get("NO_COLOR"))
    )
    if terminal.is_terminal:
        return terminal
    trimmed = cast(TextIO, _Trimmed(sys.stdout))
    return Console(
        file=trimmed, width=WIDTH, highlight=False, markup=False, emoji=False, no_color=True
    )


class _Trimmed(io.TextIOBase):
    """A text stream whose lines lose the spaces that rich fills a table's last column with."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_TRAILING.sub("", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def print_facts(rows: Iterable[tuple[str, str | Text]], out: Console, name_width: int = 9) -> None:
    """Prints names in a column, and what belongs to each, wrapped beside it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=name_width)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, text)
    if grid.row_count:  # rich prints an empty line for a grid without rows
        out.print(grid)


def table(columns: Sequence[str], gap: int = 2, name_width: int | None = None) -> Table:
    """An empty table of names and numbers: all but the first column are right-aligned.

    Args:
      columns: their heads; one without a head holds words and is left-aligned.
      gap: spaces between columns.
      name_width: names are cut to it and nothing is wrapped; None wraps what is too long.
    """
    made = Table(box=None, padding=(0, gap, 0, 0))
    for position, name in enumerate(columns):
        made.add_column(
            name,
            justify="left" if position == 0 or not name else "right",
            max_width=name_width if position == 0 else None,
            no_wrap=name_width is not None,
        )
    return made

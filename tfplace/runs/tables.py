"""Rows as CSV and as a Markdown table."""

import csv
import io
from collections.abc import Collection, Iterable, Sequence

from graphs.protos import JsonObject


def csv_text(columns: Sequence[str], rows: Iterable[JsonObject]) -> str:
    """A head line, then one line for each row; what is in no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown_table(
    columns: Sequence[str], numbers: Collection[str], rows: Iterable[Sequence[str]]
) -> str:
    """A table whose columns named in `numbers` are flush right."""
    rule = "|".join("---:" if column in numbers else "---" for column in columns)
    return "\n".join([_line(columns), f"|{rule}|", *map(_line, rows)]) + "\n"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"

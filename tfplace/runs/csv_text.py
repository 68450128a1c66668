"""Rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """A head line, then one line for each row; what is in no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

"""The one line on stderr with which a command says what went wrong."""

from __future__ import annotations

import sys

LONGEST_WORD = 300  # of an error line: a path may be long, a name of a damaged file endless
LONGEST_LINE = 2000


def print_error(message: str) -> None:
    """Prints `tfplace: error: …` on stderr."""
    print(f"tfplace: error: {one_line(message)}", file=sys.stderr)


def one_line(text: str) -> str:
    """The text in one line that a person can read, whatever names are in it."""
    line = " ".join(_shortened(word, LONGEST_WORD) for word in text.split())
    return _shortened(line, LONGEST_LINE)


def _shortened(text: str, length: int) -> str:
    """At most `length` characters: the first two thirds and the end, where the remedy stands."""
    if len(text) <= length:
        return text
    return f"{text[: length * 2 // 3]}...{text[3 - length // 3 :]}"

"""Did you mean ...?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """ "; nearest: 'a', 'b'", the known words most like `word`, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)
    return f"; nearest: {', '.join(map(repr, matches))}" if matches else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""

"""Did you mean ...?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """The known words most like `word`, as "'a', 'b'"; "(none)" where nothing is like it."""
    matches = difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)
    return ", ".join(repr(match) for match in matches) or "(none)"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""

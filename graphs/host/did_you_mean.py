"""Endings of error messages that name the known words most like an unknown one."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; nearest: 'a', 'b'", the known words most like `word`, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"; nearest: {', '.join(map(repr, matches))}" if matches else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def did_you_mean_file(path: str) -> str:
    """ "; did you mean 'folder/name'?" with what lies where `path` should, or an empty string.

    Of a link that leads nowhere it says where.
    """
    wanted = Path(path)
    try:
        if wanted.is_symlink():
            return f"; it is a link to {os.readlink(wanted)!r}"
        others = [name for name in os.listdir(wanted.parent) if name != wanted.name]
        matches = difflib.get_close_matches(wanted.name, others, n=1)
    except (OSError, ValueError):  # no folder, or no name at all
        return ""
    return f"; did you mean {str(wanted.with_name(matches[0]))!r}?" if matches else ""

"""Flags that several jobs share, in a flagfile or on a line of their own: each takes what it has.

What a job's own line says has to be right; of what it shares, flags of other commands are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfplace.commands.command_table import COMMANDS
from tfplace.commands.flag_table import FORMAT, Flag, define
from tfplace.commands.parse import require_flagfiles

_NO = "no"


def fitting(
    command: str, own: Sequence[str], shared: Sequence[str], more_flags: Sequence[Flag]
) -> tuple[list[str], list[str]]:
    """A job's words with the shared flags that its command has, and the others' names.

    Args:
      command: a name of the table.
      own: words of the job's line; those of a --flagfile in them are shared.
      shared: words that hold for several jobs.
      more_flags: flags that every job may have.

    Raises:
      UsageError: a flagfile is a device.
      absl.flags.Error: one can't be opened.
    """
    known = {flag.name: flag for flag in (*COMMANDS[command].flags, *more_flags)}
    others = {flag.name: flag for each in COMMANDS.values() for flag in each.flags}
    elsewhere = {name: flag for name, flag in others.items() if name not in known}
    kept, left_out = _without(_expanded(shared), elsewhere)
    remaining = list(own)
    while remaining:
        word = remaining.pop(0)
        if word.lstrip("-").partition("=")[0] != "flagfile" or not word.startswith("-"):
            kept.append(word)
            continue
        file = [word] if "=" in word else [word, *remaining[:1]]
        del remaining[: len(file) - 1]
        words, names = _without(_expanded(file), elsewhere)
        kept, left_out = kept + words, left_out + names
    return kept, list(dict.fromkeys(left_out))


def _expanded(words: Sequence[str]) -> list[str]:
    """The words with those of flagfiles in the flagfiles' places."""
    require_flagfiles(words)
    return list(define(FORMAT).read_flags_from_files(list(words), force_gnu=True))


def _without(words: Sequence[str], flags_of_others: dict[str, Flag]) -> tuple[list[str], list[str]]:
    """The words without these flags and their values, and the names of those that were there."""
    kept: list[str] = []
    left_out: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, has_value, _ = word.lstrip("-").partition("=")
        flag = flags_of_others.get(name)
        if flag is None and name.startswith(_NO):
            flag = flags_of_others.get(name.removeprefix(_NO))
            flag = flag if flag is not None and flag.kind == "boolean" else None
        if flag is None or not word.startswith("-"):
            kept.append(word)
            continue
        left_out.append(flag.name)
        if not has_value and flag.kind != "boolean":
            del remaining[:1]
    return kept, left_out

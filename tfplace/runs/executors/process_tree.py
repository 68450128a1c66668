"""A process with all that it started: how much memory they take, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_COUNTED = ("RssAnon:", "RssShmem:")  # pages of files are shared with everybody who maps them


def descendants(root: int, proc: Path = _PROC) -> list[int]:
    """The process and its children, theirs, and so on; those that have ended are left out."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process, [])
    return found


def memory_bytes(processes: Iterable[int], proc: Path = _PROC) -> int:
    """Memory of its own that each of the processes holds, together; swapped pages don't count."""
    return sum(_own_bytes(proc / str(process)) for process in processes)


def kill_session(leader: int) -> None:
    """Kills the processes of a session whose leader was started here; its end ends the others.

    Children of tfplace that lead sessions of their own are tied to it (see dies_with_parent).
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _own_bytes(entry: Path) -> int:
    try:
        lines = (entry / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    kilobytes = (int(line.split()[1]) for line in lines if line.startswith(_COUNTED))
    return 1024 * sum(kilobytes)

"""Folders for what is made on the way: nothing of them stays, however a process ends.

Each is locked by the process that made it, and the kernel frees the lock when that is killed. Who
makes the next one in the same place removes those that nobody holds. A process has one for all of
its temporary files, and its children's lie in it.
"""

import atexit
import contextlib
import fcntl
import functools
import os
import re
import shutil
import tempfile
from pathlib import Path

from graphs.errors import OutputError
from graphs.host.whole_file import NAME_LENGTH

_SUFFIX = ".unfinished"
_LOCK = "lock"
ROOM = 1 << 20
"""Bytes that any run needs for temporary files."""
OLD = "old"
"""What is moved into a folder while its target is replaced, which goes back if nothing came."""


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """A new temporary directory, as a context; raises OSError as tempfile does."""
    return tempfile.TemporaryDirectory(dir=scratch_of_process(os.getpid()))


def temporary_directory() -> str:
    """A new directory that is removed when this process ends; raises OSError as tempfile does."""
    return tempfile.mkdtemp(dir=scratch_of_process(os.getpid()))


def no_temporary_room(error: OSError) -> OutputError:
    """What to say where the folder for temporary files takes no more."""
    return OutputError(
        f"writing to the temporary folder {tempfile.gettempdir()}: {error.strerror}; free the disk "
        "or set TMPDIR to a folder with room"
    )


@functools.cache
def scratch_of_process(pid: int) -> str:
    """The folder of this process, `pid`, for temporary files of its own and its children's."""
    target = Path(tempfile.gettempdir(), "tfplace")
    remove_stale(target)
    scratch, _ = locked_scratch(target)

    def remove() -> None:
        if os.getpid() == pid:  # not in a process that was forked of it
            shutil.rmtree(scratch, ignore_errors=True)

    atexit.register(remove)
    return str(scratch)


def locked_scratch(target: Path) -> tuple[Path, int]:
    """Makes a hidden directory beside `target`; the descriptor of the lock in it keeps it."""
    while True:
        prefix = f".{target.name[:NAME_LENGTH]}."
        scratch = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=target.parent))
        lock = os.open(scratch / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            is_held = _is_locked(lock)
        except OSError:  # there are no locks here, so that nobody takes it for stale
            is_held = True
        # Another process may have taken it for stale before the lock was held.
        if is_held and (scratch / _LOCK).exists():
            os.write(lock, str(os.getpid()).encode())
            return scratch, lock
        os.close(lock)


def _is_locked(lock: int) -> bool:
    """Takes a lock unless another process holds it; raises OSError where there are no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_stale(target: Path) -> bool:
    """Removes what a killed process of this user has left beside the same target.

    Returns:
      Whether another process makes this target now.
    """
    prefix, is_made = f".{target.name[:NAME_LENGTH]}.", False
    for entry in target.parent.iterdir():
        if not re.fullmatch(re.escape(prefix) + r"[^.]+" + re.escape(_SUFFIX), entry.name):
            continue
        with contextlib.suppress(OSError):  # another process removes it at the same time
            if entry.is_symlink() or entry.stat().st_uid != os.geteuid():
                continue
            # Killed before it made its lock, it is as stale: made here, the lock is ours.
            lock = os.open(entry / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if not _is_locked(lock):
                    is_made = is_made or os.read(lock, 20) != str(os.getpid()).encode()
                    continue
                if (entry / OLD).exists() and not os.path.lexists(target):
                    os.rename(entry / OLD, target)  # killed between its two renames
                shutil.rmtree(entry, ignore_errors=True)
            finally:
                os.close(lock)
    return is_made

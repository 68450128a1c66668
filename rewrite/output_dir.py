"""Makes an output directory that appears whole or not at all."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphs.errors import OutputError
from graphs.host.whole_file import NAME_LENGTH, exchange

_SUFFIX = ".unfinished"
_LOCK = "lock"
_OLD = "old"


@contextlib.contextmanager
def atomic_directory(target: str | os.PathLike[str], overwrite: bool) -> Iterator[Path]:
    """Gives an empty directory beside `target` to write to and renames it when the block ends.

    All files are synced to the disk before the rename. If the block raises, nothing is left; a
    target that was there before stays as it was until the new one is complete. A process that is
    killed leaves a hidden directory, which the next one with the same target removes.

    Raises:
      OutputError: target exists and overwrite is False, or its parent can't be written.
    """
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and not overwrite:
        raise OutputError(
            f"writing {str(target)!r}: it exists already; give another --output_dir, or "
            "--overwrite to replace it"
        )
    with scratch_beside(target) as scratch:
        try:
            made = scratch / "new"
            made.mkdir()
            yield made
            sync_tree(made)
            _put_in_place(made, target, scratch / _OLD, overwrite)
        except OSError as error:
            raise OutputError(
                f"writing {str(target)!r}: {error}; free the disk or give another --output_dir"
            ) from error


@contextlib.contextmanager
def scratch_beside(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a hidden directory on the file system of `target` that goes when the block ends.

    A process that is killed leaves it, and the next one with the same target removes it.

    Raises:
      OutputError: the parent of `target` can't be written.
    """
    target = Path(os.path.abspath(target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        scratch, lock = _locked_scratch(target)
    except OSError as error:
        raise OutputError(
            f"writing {str(target)!r}: {error}; give an --output_dir that can be written"
        ) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


def _locked_scratch(target: Path) -> tuple[Path, int]:
    """Makes a hidden directory with a lock in it, which the kernel frees when this process ends."""
    while True:
        prefix = f".{target.name[:NAME_LENGTH]}."
        scratch = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=target.parent))
        lock = os.open(scratch / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        # Another process may take it for stale before the lock is held.
        if _is_locked(lock) and (scratch / _LOCK).exists():
            return scratch, lock
        os.close(lock)


def _is_locked(lock: int) -> bool:
    """Takes a lock unless another process holds it; where there are no locks, it is nobody's."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_stale(target: Path) -> None:
    """Removes what a killed process has left beside the same target."""
    prefix = f".{target.name[:NAME_LENGTH]}."
    for entry in target.parent.iterdir():
        if not (entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)):
            continue
        with contextlib.suppress(OSError):  # another process removes it at the same time
            # Killed before it made its lock, it is as stale: made here, the lock is ours.
            lock = os.open(entry / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if _is_locked(lock):
                    if (entry / _OLD).exists() and not os.path.lexists(target):
                        os.rename(entry / _OLD, target)  # killed between its two renames
                    shutil.rmtree(entry, ignore_errors=True)
            finally:
                os.close(lock)


def _put_in_place(made: Path, target: Path, old: Path, overwrite: bool) -> None:
    if os.path.lexists(target):
        if not overwrite:
            raise OutputError(
                f"writing {str(target)!r}: something else made it meanwhile; run again"
            )
        if exchange(made, target):
            _sync(target.parent)
            return
        os.rename(target, old)
    try:
        os.rename(made, target)
    except BaseException:
        if os.path.lexists(old):
            os.rename(old, target)
        raise
    _sync(target.parent)


def sync_tree(root: Path) -> None:
    """Waits until all that lies in a directory is on the disk."""
    for folder, _, files in os.walk(root):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

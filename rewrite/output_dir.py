"""Makes an output directory that appears whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphs.errors import OutputError
from graphs.host.scratch import OLD, ROOM, locked_scratch, no_temporary_room, remove_stale
from graphs.host.whole_file import exchange


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
            _put_in_place(made, target, scratch / OLD, overwrite)
        except OSError as error:
            temporary = tempfile.gettempdir()
            if shutil.disk_usage(temporary).free < min(ROOM, shutil.disk_usage(scratch).free):
                raise no_temporary_room(error) from error
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
        if remove_stale(target):
            raise OutputError(
                f"writing {str(target)!r}: another run writes there now; wait for its end, or give "
                "another --output_dir"
            )
        scratch, lock = locked_scratch(target)
    except OSError as error:
        raise OutputError(
            f"writing {str(target)!r}: {error}; give an --output_dir that can be written"
        ) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
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

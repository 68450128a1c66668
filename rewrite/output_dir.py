"""An output directory appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphs.errors import OutputError


@contextlib.contextmanager
def atomic_directory(target: str | os.PathLike[str], overwrite: bool) -> Iterator[Path]:
    """Gives an empty directory beside `target` to write to and renames it when the block ends.

    All files are synced to the disk before the rename. If the block raises, nothing is left; a
    target that was there before stays as it was until the new one is complete.

    Raises:
      OutputError: target exists and overwrite is False, or its parent can't be written.
    """
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and not overwrite:
        raise OutputError(
            f"writing {str(target)!r}: it exists already; give another --output_dir, or "
            "--overwrite to replace it"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise OutputError(
            f"writing {str(target)!r}: {error}; give an --output_dir that can be written"
        ) from error
    try:
        made = scratch / "new"
        made.mkdir()
        yield made
        _sync_tree(made)
        _put_in_place(made, target, scratch / "old", overwrite)
    except OSError as error:
        raise OutputError(
            f"writing {str(target)!r}: {error}; free the disk or give another --output_dir"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _put_in_place(made: Path, target: Path, old: Path, overwrite: bool) -> None:
    if os.path.lexists(target):
        if not overwrite:
            raise OutputError(
                f"writing {str(target)!r}: something else made it meanwhile; run again"
            )
        os.rename(target, old)
    try:
        os.rename(made, target)
    except BaseException:
        if os.path.lexists(old):
            os.rename(old, target)
        raise
    _sync(target.parent)


def _sync_tree(root: Path) -> None:
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

"""Where results go: checked before work begins, filled aside, put in place at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphs.errors import OutputError

ENDINGS = (".pb", ".pbtxt", ".meta", ".keras", ".h5", ".hdf5")


def default_output_dir(model: str) -> str:
    """MODEL's stem + "_placed", beside where the command runs from it."""
    path = Path(model.rstrip("/"))
    if path.name in ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"):
        path = path.parent
    stem = path.name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending)
    return str(path.with_name(f"{stem}_placed"))


def require_free(path: str, overwrite: bool) -> None:
    """Raises OutputError where `path` exists already or its folder can't be written."""
    target = Path(path)
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise OutputError(
            f"writing {path}: it exists already; choose another place, or say --overwrite"
        )
    parent = target.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(f"writing {path}: {parent} is no folder that can be written to")


@contextlib.contextmanager
def staged(output_dir: str, overwrite: bool) -> Iterator[str]:
    """Yields a path beside `output_dir` to fill; renames it there if all goes well.

    A failure inside leaves nothing behind, and what was at `output_dir` stays as it was.

    Raises:
      OutputError: the place is taken, or the disk refuses.
    """
    require_free(output_dir, overwrite)
    target = Path(output_dir).absolute()
    try:
        made = _make_parents(target.parent)
        aside = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise OutputError(f"writing {output_dir}: {error.strerror}; choose another place") from None
    try:
        filled = os.path.join(aside, "new")
        yield filled
        _put(filled, target, os.path.join(aside, "old"))
        made = []
    except OSError as error:
        raise OutputError(
            f"writing {output_dir}: {error.strerror or error}; free some space or choose another "
            "place"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _make_parents(folder: Path) -> list[Path]:
    """Makes what is missing of a path; returns what was made, outermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir()
    return missing[::-1]


def _put(filled: str, target: Path, aside: str) -> None:
    if target.exists() or target.is_symlink():
        os.rename(target, aside)
        try:
            os.rename(filled, target)
        except OSError:
            os.rename(aside, target)
            raise
    else:
        os.rename(filled, target)


def write_file(path: str, content: bytes, overwrite: bool) -> None:
    """Writes one file aside and renames it, so that `path` is whole or not there."""
    require_free(path, overwrite)
    target = Path(path).absolute()
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(aside, 0o644)
            os.rename(aside, target)
        except BaseException:
            os.unlink(aside)
            raise
    except OSError as error:
        raise OutputError(f"writing {path}: {error.strerror}; choose another place") from None

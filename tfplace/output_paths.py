"""Where results go: checked before work begins; files are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
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


def require_apart(path: str, model: str) -> None:
    """Raises OutputError where writing to `path` would replace the model that is read."""
    target, read = Path(os.path.realpath(path)), Path(os.path.realpath(model))
    if target == read or target in read.parents or read in target.parents:
        raise OutputError(
            f"writing {path}: the model that is read, {model}, lies there and would be lost "
            "or copied into itself; give "
            "another --output_dir"
        )


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

"""Checks, before work begins, that results can be written; a file is there whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from graphs.errors import OutputError
from graphs.host.scratch import ROOM, no_temporary_room
from graphs.host.whole_file import NAME_LENGTH, is_stream, write_whole

ENDINGS = (".pb", ".pbtxt", ".meta", ".keras", ".h5", ".hdf5")
# One of these is in every folder that `optimize` may replace.
_OF_A_MODEL = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb", "assets.extra/tfplace")


def default_output_dir(model: str) -> str:
    """MODEL's stem + "_placed", beside where the command runs from it."""
    path = Path(model.rstrip("/"))
    if path.name in ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"):
        path = path.parent
    if path.name in ("", ".."):  # a folder that is named by where it lies
        path = Path(os.path.abspath(path))
    stem = path.name or "model"
    for ending in ENDINGS:
        stem = stem.removesuffix(ending)
    return str(path.parent / f"{stem}_placed")


def require_free(path: str, overwrite: bool) -> None:
    """Raises OutputError where `path` exists already and isn't to be replaced; no stream is."""
    if os.path.lexists(path) and not overwrite and not is_stream(path):
        raise OutputError(
            f"writing {path}: it exists already; choose another place, or say --overwrite"
        )


def require_replaceable(output_dir: str, overwrite: bool) -> None:
    """Raises OutputError unless nothing stands there, or what may be replaced: a model's folder.

    --overwrite is said by habit, and a folder of somebody's other files would be lost as a whole.
    """
    require_free(output_dir, overwrite)
    if not os.path.lexists(output_dir):
        return
    if not os.path.isdir(output_dir):
        raise OutputError(f"writing {output_dir}: a file stands there; choose another place")
    if os.listdir(output_dir) and not any(Path(output_dir, each).exists() for each in _OF_A_MODEL):
        raise OutputError(
            f"writing {output_dir}: the folder there holds no model, and all that is in it would "
            "be lost; choose another place, or empty it"
        )


@contextlib.contextmanager
def writable(*paths: str | None) -> Iterator[None]:
    """Makes sure, before work begins, that these paths can be written when it ends.

    A file is made beside each and removed again: as root, or in /proc, permissions say nothing.
    A stream needs none.
    Missing parent folders are made; if the block raises, those that are still empty are removed.

    Args:
      *paths: of files and directories to write; None is passed over.

    Raises:
      OutputError: one of them can't be written.
    """
    made: list[Path] = []
    try:
        with tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        raise no_temporary_room(error) from None
    try:
        for path in filter(None, paths):
            # As mkdir -p: in "a/../b" the system looks for a. And what a link leads to.
            _make_parents(Path(path).absolute(), made)
            _make_parents(Path(os.path.realpath(path)), made)
            _try_to_write(path)
        yield
    except BaseException:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else uses it by now
                folder.rmdir()
        raise


def _make_parents(target: Path, made: list[Path]) -> None:
    missing = []
    for folder in target.parents:
        if os.path.lexists(folder):
            break
        missing.append(folder)
    try:
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            made.append(folder)
    except OSError as error:
        raise OutputError(
            f"writing {target}: the folder {folder} can't be made ({error.strerror}); choose "
            "another place"
        ) from None


def _try_to_write(path: str) -> None:
    if is_stream(path):
        return
    target = Path(os.path.realpath(path))
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{target.name[:NAME_LENGTH]}.", dir=target.parent)
        os.close(handle)
        os.unlink(aside)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)  # refuses a name that is too long
    except OSError as error:
        raise OutputError(
            f"writing {path}: the folder {target.parent} can't be written to ({error.strerror}); "
            "choose another place"
        ) from None


def require_apart(path: str, model: str) -> None:
    """Raises OutputError where writing to `path` would replace the model that is read."""
    target, read = Path(os.path.realpath(path)), Path(os.path.realpath(model))
    if target == read or target in read.parents or read in target.parents:
        raise OutputError(
            f"writing {path}: the model that is read, {model}, lies there and would be lost "
            "or copied into itself; give another --output_dir"
        )


def require_files(
    files: Mapping[str, str | None], read: Iterable[str], overwrite: bool = True
) -> None:
    """Raises OutputError where one of {flag: file to write} can't be, or would replace something.

    Args:
      files: what is written; None is not.
      read: paths that are read.
      overwrite: whether files that are there may be replaced.
    """
    flag_of: dict[str, str] = {}
    for flag, path in files.items():
        if path is None or is_stream(path):  # which several may write to
            continue
        other = flag_of.setdefault(os.path.realpath(path), flag)
        if other != flag:
            raise OutputError(
                f"writing {flag}={path}: {other} is the same file; give each one of its own"
            )
    for flag, path in files.items():
        require_file(path, flag)
        require_unread(path, flag, read)
        if path is not None:
            require_free(path, overwrite)


def require_file(path: str | None, flag: str, output_dir: str = "") -> None:
    """Raises OutputError where a file can't be: a directory, or in a directory yet to be made."""
    if path is None:
        return
    if os.path.isdir(path):
        raise OutputError(f"writing {flag}={path}: a directory stands there; give a file's name")
    if output_dir:
        require_outside(path, flag, output_dir)


def require_unread(path: str | None, flag: str, read: Iterable[str]) -> None:
    """Raises OutputError where what is written, and so replaced, is or holds what is read."""
    if path is None:
        return
    target = Path(os.path.realpath(path))
    for each in read:
        file = Path(os.path.realpath(each))
        if target == file or target in file.parents:
            raise OutputError(
                f"writing {flag}={path}: {each} is read, and would be lost; choose another place"
            )


def require_outside(path: str | None, flag: str, output_dir: str) -> None:
    """Raises OutputError where a path lies in a directory that appears whole at the end."""
    if path is None:
        return
    target, inside = Path(os.path.realpath(output_dir)), Path(os.path.realpath(path))
    if target == inside or target in inside.parents:
        raise OutputError(
            f"writing {flag}={path}: {output_dir} appears whole at the end, with nothing else in "
            "it; give a place outside of it"
        )


def write_file(path: str, content: bytes, overwrite: bool) -> None:
    """Writes one file aside and renames it, so that `path` is whole or not there.

    Raises:
      OutputError: the path is taken or can't be written.
    """
    require_free(path, overwrite)
    write_whole(path, lambda file: file.write(content))

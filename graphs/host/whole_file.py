"""Files read whole, and written whole or not at all, whenever the process is killed."""

import contextlib
import ctypes
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from graphs.errors import OutputError

NAME_LENGTH = 200  # of a name's 255 bytes, so that a random ending still fits
_HERE, _RENAME_EXCHANGE = -100, 2  # AT_FDCWD and a flag of renameat2(2)


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Lets `write` fill a file beside `path`, which it then replaces.

    A link stays one, and what it leads to is replaced; a stream is written to as it stands.

    Raises:
      OutputError: it can't be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if is_stream(path):
            with open(path, "wb") as stream:
                write(stream)
            return
        handle, aside = tempfile.mkstemp(prefix=f".{target.name[:NAME_LENGTH]}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            os.chmod(aside, _mode_of(target))  # mkstemp's is for its owner alone
            os.replace(aside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
    except OSError as error:
        raise OutputError(f"writing {path}: {error.strerror}; choose another place") from None


def _mode_of(target: Path) -> int:
    """The permissions of the file that is replaced, else those that the user's umask leaves."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    os.umask(mask := os.umask(0o077))  # there is no other way to read it
    return 0o666 & ~mask


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a device or a pipe stands there, as /dev/null: no file may take its place."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_device(path: str | os.PathLike[str]) -> bool:
    """Whether reading may never end, as of /dev/zero, and take all memory; OSError: none there."""
    mode = os.stat(path).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_text(path: str | os.PathLike[str]) -> str:
    """A text that a user names, in UTF-8; OSError: it can't be read, or is a device."""
    if is_device(path):
        raise OSError(errno.EINVAL, "it is a device")
    return Path(path).read_text(encoding="utf-8")


def exchange(made: Path, target: Path) -> bool:
    """Swaps two names at one instant; False where the system can't, and nothing has changed."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    names = (os.fsencode(made), os.fsencode(target))
    done: int = renameat2(_HERE, names[0], _HERE, names[1], _RENAME_EXCHANGE)
    return done == 0

"""Functions that Numba compiles: how they are declared, and where their machine code is kept.

Numba keeps the machine code of a function on disk until the file in which the function stands
changes. But whatever a function calls is compiled into it, also from other files, and so are the
constants and the layouts of the named tuples that it imports: after a change there, Numba alone
would go on running the old code. So the name of the folder in which all of it is kept holds a hash
of every source that can have become part of it.

The folder lies in $NUMBA_CACHE_DIR where that is set, else in tfplace's own cache folder. Where
that can't be written, every process compiles anew, which takes it 10 to 30 seconds.
"""

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite.binding import get_host_cpu_name
from numba.core.caching import FunctionCache
from numba.extending import register_jitable

_log = logging.getLogger("tfplace")

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

# Compiled functions only read and write arrays of their caller. Without `_nrt=False` Numba counts
# references, with atomic instructions, at each touch of an array that lies in a named tuple: the
# simulation takes 15 times as long. The price: they can't allocate, which slices and x[:] = 0 do.
_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}

FOLDER_NAME = "tfplace-compiled-"
NUM_KEPT = 8
"""So many folders stay, those used last: of other versions, processors and checkouts."""
SECONDS_KEPT = 24 * 3600.0
"""A folder that a process began to use within this time stays, too: that process may still run."""

_PACKAGES = ("graphs", "rewrite", "tfplace")
_DECLARES = re.compile(rb"^@compiled", re.MULTILINE)
_IMPORTS = re.compile(r"^from ((?:graphs|rewrite|tfplace)[\w.]*) import", re.MULTILINE)

_config_lock = threading.Lock()


def compiled(function: AnyFunction) -> AnyFunction:
    """Declares a compiled function that Python calls; compiled functions may call it, too."""
    folder = cache_folder()
    # Numba asks for the folder when a function is declared, and only there; functions of others
    # are to find theirs where they always were.
    with _config_lock:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = "" if folder is None else str(folder)
        try:
            dispatcher = numba.njit(**_OPTIONS)(function)
            if folder is not None:
                dispatcher._cache = _Cache(function)
            return dispatcher
        finally:
            numba.config.CACHE_DIR = before


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's, in which a damaged file is as none, and where what can't be written isn't kept."""

    def load_overload(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever pickle raises of a file that was cut
            with contextlib.suppress(OSError):
                self.flush()
        return None

    def save_overload(self, sig: object, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_not_kept(f"{self.cache_path}: {error.strerror}")


@functools.cache
def _warn_not_kept(why: str) -> None:
    _log.warning(
        "compiled code can't be kept for the next run (%s), which will compile again; set "
        "NUMBA_CACHE_DIR to a folder that can be written",
        why,
    )


def compiled_part(function: AnyFunction) -> AnyFunction:
    """Declares a function that only compiled functions call; from Python it runs uncompiled.

    It is compiled into its callers. Nothing has to be made of Python's arguments then, so that it
    takes two thirds of the time that `compiled` would.
    """
    return register_jitable(**_OPTIONS)(function)


@functools.cache
def cache_folder() -> Path | None:
    """Where the machine code of this process's sources is kept; None where nothing can be kept."""
    try:
        parent = Path(numba.config.CACHE_DIR or cache_directory())
        folder = parent / f"{FOLDER_NAME}{sources_hash(Path(__file__).parents[2])}"
        is_new = not folder.exists()
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _require_own(folder, parent)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
        if is_new:
            _remove_old(parent)
    except (OSError, RuntimeError) as error:
        _warn_not_kept(str(error))
        return None
    return folder


def _require_own(*folders: Path) -> None:
    """What lies in a cache is run: raises OSError where others may put something there.

    Those of the process's own group may where that is all that a folder says: on most systems it
    has no other members.
    """
    for folder in folders:
        facts = folder.stat()
        is_open = facts.st_mode & (0o002 if facts.st_gid == os.getegid() else 0o022)
        if facts.st_uid not in (os.geteuid(), 0):
            raise OSError(f"{folder} is another user's")
        if is_open and not facts.st_mode & stat.S_ISVTX:
            raise OSError(f"others may write to {folder}")


def is_noted(what: str) -> bool:
    """Whether `note` was called with this word for this process's sources, on this processor."""
    folder = cache_folder()
    return folder is not None and (folder / f"{what}.done").exists()


def note(what: str) -> None:
    """Notes that something is compiled, beside the machine code; nothing where that isn't kept."""
    folder = cache_folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / f"{what}.done").touch()


def sources_hash(root: Path) -> str:
    """A hash of all that decides what machine code comes of the sources in a folder.

    These are the sources that declare compiled functions, those of ours that they import (for their
    constants and named tuples), Numba's version and the processor; and where they lie, since
    Numba finds what it kept by the path of a source.
    """
    hasher = hashlib.sha256(f"{numba.__version__} {get_host_cpu_name()} {root}".encode())
    for path in _compiled_sources(root):
        hasher.update(f"\n{path.relative_to(root)}\n".encode() + path.read_bytes())
    return hasher.hexdigest()[:20]


def _compiled_sources(root: Path) -> list[Path]:
    files = [path for package in _PACKAGES for path in (root / package).rglob("*.py")]
    declaring = [path for path in files if _DECLARES.search(path.read_bytes())]
    imported: set[Path] = set()
    for path in declaring:
        for name in _IMPORTS.findall(path.read_text(encoding="utf-8")):
            module = root / name.replace(".", "/")
            imported |= {module.with_suffix(".py"), *module.glob("*.py")}
    return sorted(imported.intersection(files).union(declaring))


def clear_compiled(parent: Path) -> None:
    """Removes the machine code of all sources in a folder; what runs now compiles anew."""
    for folder in parent.glob(f"{FOLDER_NAME}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _remove_old(parent: Path) -> None:
    with contextlib.suppress(OSError):  # another process may be removing the same ones
        last_use = {path: path.stat().st_mtime for path in parent.glob(f"{FOLDER_NAME}*")}
        for folder in sorted(last_use, key=last_use.__getitem__)[:-NUM_KEPT]:
            if last_use[folder] < time.time() - SECONDS_KEPT:
                shutil.rmtree(folder, ignore_errors=True)


def cache_directory() -> Path:
    """$TFPLACE_CACHE_DIR, or tfplace/ in the user's cache folder (XDG base directories).

    Raises:
      RuntimeError: neither a variable nor the system says where the user's home is.
    """
    own = os.environ.get("TFPLACE_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "tfplace"

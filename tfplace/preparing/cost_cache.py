"""Costs that were found once, kept as files: a second run of a model starts at once.

One file per entry, an .npz of plain arrays with a description of what it belongs to. Files are
written whole and renamed into place, so that runs at the same time never see half of one; what
can't be read is told, passed over and written anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphs.errors import OutputError

_log = logging.getLogger("tfplace")

COST_VERSION = 5
"""Counts up when what is kept, or how it is found, changes its meaning."""

_SUFFIX = ".costs.npz"
_DESCRIPTION = "description"
Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """What an entry belongs to.

    Attributes:
      kind: "work" or "traced".
      parts: {name: text} of everything that the costs depend on.
      labels: {name: text} for a person who lists the cache; not part of the key.
    """

    kind: str
    parts: Mapping[str, str]
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def file_name(self) -> str:
        text = json.dumps([COST_VERSION, self.kind, sorted(self.parts.items())])
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:40]}{_SUFFIX}"


@dataclasses.dataclass(frozen=True)
class CacheEntry:
    """Attributes: path; num_bytes; written: seconds since 1970; description: parts and labels,
    empty where the file can't be read.
    """

    path: str
    num_bytes: int
    written: float
    description: Mapping[str, str]


class CostCache:
    """The entries in one folder; without a folder it keeps nothing."""

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self._directory = None if directory is None else Path(directory).expanduser()

    def read(self, key: CacheKey) -> Arrays | None:
        """The arrays of an entry; None where there is none that can be read."""
        if self._directory is None:
            return None
        path = self._directory / key.file_name
        try:
            return _read(path)
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            _log.warning("the cache entry %s can't be read (%s): it is made anew", path, error)
            return None

    def write(self, key: CacheKey, arrays: Arrays) -> None:
        """Keeps arrays; a folder that can't be written is a warning."""
        if self._directory is None:
            return
        text = json.dumps({"kind": key.kind, **key.parts, **key.labels})
        path = self._directory / key.file_name
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            _write_whole(path, {**arrays, _DESCRIPTION: np.array(text)})
        except OSError as error:
            _log.warning(
                "costs can't be kept in %s (%s): the next run finds them again; give another "
                "--cost_cache_dir, or --nocost_cache",
                self._directory,
                error.strerror or error,
            )

    def entries(self) -> list[CacheEntry]:
        """All entries, the newest first."""
        found = []
        for path in self._files():
            try:
                status = path.stat()
            except FileNotFoundError:  # another run clears the cache
                continue
            found.append(CacheEntry(str(path), status.st_size, status.st_mtime, _description(path)))
        return sorted(found, key=lambda entry: -entry.written)

    def clear(self) -> list[CacheEntry]:
        """Removes all entries, and leftovers of writers that were killed; says what they were.

        Raises:
          OutputError: one can't be removed.
        """
        removed = self.entries()
        for path in [*self._files(), *self._leftovers()]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(
                    f"clearing the cost cache: {path} can't be removed ({error.strerror}); remove "
                    "it yourself, or use another --cost_cache_dir"
                ) from None
        return removed

    def _files(self) -> Sequence[Path]:
        return [] if self._directory is None else sorted(self._directory.glob(f"*{_SUFFIX}"))

    def _leftovers(self) -> Sequence[Path]:
        return [] if self._directory is None else sorted(self._directory.glob(f"*{_SUFFIX}.tmp"))


_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)


def _read(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    json.loads(str(arrays.pop(_DESCRIPTION)))
    return arrays


def _write_whole(path: Path, arrays: Arrays) -> None:
    descriptor, name = tempfile.mkstemp(f"{_SUFFIX}.tmp", "", path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _description(path: Path) -> Mapping[str, str]:
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            found: Mapping[str, str] = json.loads(str(archive[_DESCRIPTION]))
            return found
    except _UNREADABLE:
        return {}


def age_seconds(entry: CacheEntry) -> float:
    """How long ago it was written."""
    return max(time.time() - entry.written, 0.0)

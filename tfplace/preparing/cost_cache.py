"""Traced costs that were found once, kept as files: a second run of a model starts at once.

One file per entry, an .npz of plain arrays with a description of what it belongs to. Files are
written whole and renamed into place, so that runs at the same time never see half of one. A file
that can't be read is reported, passed over and written anew.

Only what a trace of real runs found is kept. Analytic prices take a second or two, and they would
go stale whenever the code that computes them changes.
"""

import dataclasses
import hashlib
import json
import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphs.errors import OutputError
from graphs.host.whole_file import write_whole

_log = logging.getLogger("tfplace")

COST_VERSION = 6
"""Counts up when what is kept, or how it is found, changes its meaning."""

_SUFFIX = ".costs.npz"
_DESCRIPTION = "description"
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)
Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """What an entry belongs to.

    Attributes:
      kind: what is kept: "traced" for seconds of a traced run.
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
    """One file of the cache.

    Attributes:
      path: where it lies.
      num_bytes: its size.
      written: seconds since 1970.
      description: the key's kind, parts and labels; empty where the file can't be read.
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
            arrays = _read(path)
            json.loads(str(arrays.pop(_DESCRIPTION)))
            return arrays
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            _log.warning("the cache entry %s can't be read (%s): it is made anew", path, error)
            return None

    def write(self, key: CacheKey, arrays: Arrays) -> None:
        """Keeps arrays; a folder that can't be written is a warning."""
        if self._directory is None:
            return
        text = np.array(json.dumps({"kind": key.kind, **key.parts, **key.labels}))
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_whole(
                self._directory / key.file_name,
                lambda file: np.savez_compressed(file, **{**arrays, _DESCRIPTION: text}),  # type: ignore[arg-type]
            )
        except (OSError, OutputError) as error:
            _log.warning(
                "costs can't be kept in %s (%s): the next run finds them again; give another "
                "--cost_cache_dir, or --nocost_cache",
                self._directory,
                getattr(error, "strerror", None) or error,
            )

    def entries(self) -> list[CacheEntry]:
        """All entries, the newest first."""
        entries = []
        for path in self._files(f"*{_SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another run clears the cache
                continue
            described = _description(path)
            entries.append(CacheEntry(str(path), status.st_size, status.st_mtime, described))
        return sorted(entries, key=lambda entry: -entry.written)

    def clear(self) -> list[CacheEntry]:
        """Removes and returns all entries and killed writers' leftovers; OutputError: it can't."""
        removed = self.entries()
        for path in [*self._files(f"*{_SUFFIX}"), *self._files(f".*{_SUFFIX}.*")]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(
                    f"clearing the cost cache: {path} can't be removed ({error.strerror}); remove "
                    "it yourself, or use another --cost_cache_dir"
                ) from None
        return removed

    def _files(self, pattern: str) -> list[Path]:
        return [] if self._directory is None else sorted(self._directory.glob(pattern))


def _read(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _description(path: Path) -> Mapping[str, str]:
    try:
        return json.loads(str(_read(path)[_DESCRIPTION]))
    except _UNREADABLE:
        return {}

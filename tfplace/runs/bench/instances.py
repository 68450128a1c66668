"""The instances of a bench, each prepared once."""

from __future__ import annotations

import functools
import tempfile
import threading
from pathlib import Path

from graphs import zoo
from graphs.errors import TfplaceError
from tfplace.preparing.options import AUTO, ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.runs.bench.any_shards import keep_model
from tfplace.search.instance import write_instance


class PreparedInstances:
    """Instances by model and cluster, prepared by whichever cell needs one first."""

    def __init__(self, scratch: str, memory_reserve: float, num_shards: int = 1) -> None:
        """Prepares nothing yet.

        Args:
          scratch: a folder that is the bench's own.
          memory_reserve: fraction of memory kept free.
          num_shards: into how many parts each step's batch is split; AUTO.
        """
        self._scratch = scratch
        self._memory_reserve = memory_reserve
        self._num_shards = num_shards
        self._lock = threading.Lock()
        self._written = functools.cache(self._write)

    def folder(self, model: str, cluster: str) -> str:
        """Where the instance lies (see tfplace.search.instance).

        Raises:
          TfplaceError: it can't be prepared.
        """
        with self._lock:
            written = self._written(model, cluster)
        if isinstance(written, TfplaceError):
            raise written
        return written

    def _write(self, model: str, cluster: str) -> str | TfplaceError:
        """The folder, or why there is none: a model that fails is not read again for each cell."""
        try:
            path = self._path(model)
            options = ProblemOptions(
                path,
                cluster=cluster,
                memory_reserve=self._memory_reserve,
                num_shards=self._num_shards,
            )
            folder = tempfile.mkdtemp(dir=self._scratch)
            if self._num_shards == AUTO:
                keep_model(path, folder)
            else:
                write_instance(folder, prepare(options).instance)
        except TfplaceError as error:
            return error
        return folder

    def _path(self, model: str) -> str:
        if model.partition(":")[0] not in zoo.NAMES or Path(model).exists():
            return model
        path = Path(self._scratch, f"{model.replace(':', '_').replace(',', '_')}.pb")
        if not path.exists():
            name, options = zoo.parse(model)
            size = str(options.pop("size", "published"))
            zoo.write(zoo.build(name, size, **options), str(path))
        return str(path)

"""Runs the cells of a bench that are not done; one that fails is a row that says why."""

import dataclasses
import functools
import itertools
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphs import zoo
from graphs.errors import OutputError, TfplaceError
from graphs.host.op_libraries import op_library_environment
from graphs.host.scratch import scratch_directory
from graphs.protos import Json, JsonObject
from tfplace.output_paths import write_file
from tfplace.preparing.options import AUTO, ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.runs.bench.any_shards import keep_model
from tfplace.runs.executors.program import Executor, Program
from tfplace.runs.resumable import ResumableRun, Tell
from tfplace.search.instance import write_instance


@dataclasses.dataclass(frozen=True)
class Cell:
    """One search: a model on a cluster by an algorithm with a seed, and its limits.

    Its fields are the first columns of its row: by them a row of an earlier run is known.
    """

    model: str
    cluster: str
    algorithm: str
    seed: int
    max_trials: int | None
    budget_seconds: float
    shards: int = 1
    order: str = "none"
    memory_reserve: float = 0.1

    def matches(self, row: JsonObject) -> bool:
        """Whether a row is this cell's, run under the same limits."""
        # Rows of an older bench say nothing of these.
        known = {"shards": 1, "order": "none", "memory_reserve": 0.1, **row}
        return all(known.get(key) == value for key, value in vars(self).items())


@dataclasses.dataclass(frozen=True)
class Grid:
    """A bench.

    Attributes:
      models: names of benchmark graphs, "nmt:num_layers=4", or paths.
      clusters: on which each model is placed.
      algorithms: that place it.
      seeds: with which each algorithm runs.
      max_trials: evaluated placements of each cell; None for no limit.
      budget_seconds: wall time of each cell's search.
      memory_reserve: fraction of memory kept free.
      parallel: cells at a time.
      shards: into how many parts each step's batch is split; AUTO tries several.
      order: "edges": of what is found for AUTO, what starts first is searched, too.
    """

    models: Sequence[str]
    clusters: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[int]
    max_trials: int | None
    budget_seconds: float
    memory_reserve: float = 0.1
    parallel: int = 1
    shards: int = 1
    order: str = "none"

    def cells(self) -> list[Cell]:
        """All cells, those of one model and cluster together; what is named twice runs once."""
        keys = itertools.product(self.models, self.clusters, self.algorithms, self.seeds)
        limits = {field.name: getattr(self, field.name) for field in dataclasses.fields(Cell)[4:]}
        return [Cell(*key, **limits) for key in dict.fromkeys(keys)]


def read_rows(path: str) -> list[dict[str, Json]]:
    """Rows of an earlier run; none where no file is; OutputError: the file is something else."""
    if not os.path.exists(path):
        return []
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(
            f"going on with the bench in {path}: it can't be read as JSON ({error}); give "
            "another --output, or --overwrite"
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise OutputError(
            f"going on with the bench in {path}: found no list of rows; give another --output, "
            "or --overwrite"
        )
    return rows


Row = dict[str, Json]

SETUP_SECONDS = 600.0  # what a cell may take beyond its budget: imports, compiling, one batch


class BenchRun(ResumableRun[Row | None]):
    """Cells, each with its row, None where it is not done."""

    def __init__(
        self,
        grid: Grid,
        path: str,
        earlier: Sequence[Row],
        executor: Executor,
        tell: Tell[Row | None],
    ) -> None:
        """Takes from the rows of an earlier run what belongs to the grid.

        Args:
          grid: the bench.
          path: FILE.json, written after every cell.
          earlier: rows that it held before; those that belong to other grids stay in the file, and
            cells that failed are tried again.
          executor: where the cells run.
          tell: see ResumableRun.
        """
        self._grid, self._path = grid, path
        self._cells = grid.cells()
        self._others = [row for row in earlier if not any(c.matches(row) for c in self._cells)]
        done = [row for row in earlier if "error" not in row]
        row_of = {cell: row for row in done for cell in self._cells if cell.matches(row)}
        super().__init__([row_of.get(cell) for cell in self._cells], executor, tell)

    @property
    def done(self) -> list[Row]:
        """The rows of cells that are done, in the grid's order."""
        return [row for row in self.rows if row is not None]

    def is_ended(self, row: Row | None) -> bool:
        return row is not None

    def run(self, parallel: int) -> None:
        with scratch_directory() as scratch:
            self._instances = PreparedInstances(
                scratch, self._grid.memory_reserve, self._grid.shards
            )
            super().run(parallel)

    def work(self, index: int) -> Iterator[Row]:
        cell = self._cells[index]
        ended = self._ended(lambda: self._program(cell))
        if ended is None:
            return
        failure = ended.failure()
        row = _failed(failure) if failure else json.loads(ended.output.splitlines()[-1])
        yield {**dataclasses.asdict(cell), **row}

    def keep(self) -> None:
        text = ",\n".join(json.dumps(row, allow_nan=False) for row in (*self.done, *self._others))
        write_file(self._path, f"[\n{text}\n]\n".encode(), overwrite=True)

    def _program(self, cell: Cell) -> Program:
        """Its last line on stdout is the row; TfplaceError: its instance can't be prepared."""
        num_threads = max(1, len(os.sched_getaffinity(0)) // self._grid.parallel)
        request = {**dataclasses.asdict(cell), "instance": "{instance}", "num_threads": num_threads}
        return Program(
            module="tfplace.runs.bench.cell",
            arguments=[json.dumps(request)],
            environment={"OMP_NUM_THREADS": str(num_threads), **op_library_environment()},
            folders={"instance": self._instances.folder(cell.model, cell.cluster)},
            time_limit_seconds=2 * cell.budget_seconds + SETUP_SECONDS,
        )


def _failed(why: str) -> Row:
    """What the row of a cell holds that failed, beside its key."""
    return {
        "trials": 0,
        "infeasible_trials": 0,
        "seconds": 0.0,
        "step_seconds": None,
        "feasible": False,
        "single_step_seconds": None,
        "lower_bound_seconds": None,
        "history": [],
        "error": why,
    }


def num_failed(rows: Sequence[Row]) -> int:
    """Cells that ended with an error, not those that found nothing feasible."""
    return sum("error" in row for row in rows)


class PreparedInstances:
    """Instances by model and cluster, prepared by whichever cell needs one first."""

    def __init__(self, scratch: str, memory_reserve: float, num_shards: int = 1) -> None:
        """Prepares nothing yet; `num_shards` may be AUTO."""
        self._scratch = scratch
        self._memory_reserve = memory_reserve
        self._num_shards = num_shards
        self._lock = threading.Lock()
        self._written = functools.cache(self._write)

    def folder(self, model: str, cluster: str) -> str:
        """Its folder (see tfplace.search.instance); TfplaceError: it can't be prepared."""
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

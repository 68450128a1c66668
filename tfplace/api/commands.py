"""`optimize`, `simulate`, `inspect` and any other command, called from Python."""

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import Unpack

from graphs.cluster import Cluster
from graphs.clusters.discovery import find_cluster
from graphs.host.scratch import scratch_directory
from graphs.protos import Json
from tfplace.api.flags import InspectFlags, OptimizeFlags, SimulateFlags, flag_values, said_as
from tfplace.commands.command_table import run_command
from tfplace.commands.from_flags import optimize_options, problem_options
from tfplace.commands.simulate import predicted
from tfplace.optimizing import optimize as optimize_with
from tfplace.progress import Progress
from tfplace.report.inspection import Inspection, inspect_model
from tfplace.report.report import Report
from tfplace.simulation.simulated import Prediction

Path = str | os.PathLike[str]


def optimize(
    model: Path, progress: Progress | None = None, **flags: Unpack[OptimizeFlags]
) -> Report:
    """`tfplace optimize MODEL`: places a model, emits it, verifies it.

    >>> report = optimize(tiny_model, cluster="k80x2", max_trials=20,
    ...                   algorithm="local_search", output_dir=output_dir)
    >>> report.verdict in ("placed", "kept_single", "kept_given")
    True
    >>> report.best.step_seconds <= report.baselines["single"].step_seconds
    True

    Args:
      model: path of any model that the command takes.
      progress: told what goes on; silent without.
      **flags: the command's flags; `cluster` may be a Cluster.

    Raises:
      TfplaceError: as the command, one line each.
    """
    with flag_values("optimize", [os.fspath(model)], flags) as values:
        return optimize_with(optimize_options(os.fspath(model), values), progress)


def simulate(
    model: Path, placement: Path | Mapping[str, str] | None = None, **flags: Unpack[SimulateFlags]
) -> Prediction:
    """`tfplace simulate MODEL`: predicts a placement's step.

    >>> given = simulate(tiny_model, cluster="k80x2")
    >>> given.feasible, given.transfers
    (True, 0)
    >>> simulate(tiny_model, {"loss": "/device:CPU:0"}, cluster="k80x2").transfers > 0
    True

    Args:
      model: path.
      placement: a placement.json, or {op: device}; ops not named stay where the model has them.
      **flags: the command's flags; `cluster` may be a Cluster.

    Raises:
      TfplaceError: as the command.
    """
    with (
        _placement_file(placement) as path,
        flag_values("simulate", [os.fspath(model)], {**flags, "placement": path}) as values,
    ):
        return predicted(os.fspath(model), values).prediction


def inspect(model: Path, **flags: Unpack[InspectFlags]) -> Inspection:
    """`tfplace inspect MODEL`: what is in it.

    >>> inspection = inspect(tiny_model, cluster="k80x2")
    >>> inspection.mode, inspection.num_ops == sum(row.num_ops for row in inspection.op_types)
    ('train', True)
    """
    with flag_values("inspect", [os.fspath(model)], flags) as values:
        return inspect_model(problem_options(os.fspath(model), values), values.largest_batch)


def cluster(name: str) -> Cluster:
    """The cluster that `--cluster=NAME` means.

    >>> cluster("k80x2").device_names
    ('/device:CPU:0', '/device:GPU:0', '/device:GPU:1')

    Raises:
      ClusterError: there is none.
    """
    return find_cluster(name)


def run(command: str, *arguments: Path, **flags: object) -> Json:
    """Any other command in this process; what it prints with `--format=json`.

    >>> sorted(run("devices", cluster="k80x2"))
    ['cluster', 'named_clusters']

    Args:
      command: "bench", "measure", "calibrate", ...
      *arguments: its positional arguments.
      **flags: its flags.

    Raises:
      TfplaceError: as the command. One that ends with a status above 0 for another reason, as
        `check` does where something is misplaced, returns its value all the same.
    """
    words = [os.fspath(argument) for argument in arguments]
    printed = io.StringIO()
    given = {"verbosity": -1, **flags, "format": "json"}
    with flag_values(command, words, given) as values, contextlib.redirect_stdout(printed):
        run_command(command, words, values)
    return json.loads(printed.getvalue())


@contextlib.contextmanager
def _placement_file(placement: Path | Mapping[str, str] | None) -> Iterator[str | None]:
    if not isinstance(placement, Mapping):
        yield None if placement is None else os.fspath(placement)
        return
    with scratch_directory() as folder:
        path = os.path.join(folder, "placement.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(placement), file)
        with said_as(path, "placement={...}"):
            yield path

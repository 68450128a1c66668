"""Keyword arguments that are a command's flags, by the same names, defaults and checks."""

import contextlib
import json
import numbers
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from absl import flags

from graphs.cluster import Cluster
from graphs.clusters.cluster_file import cluster_to_json
from graphs.errors import TfplaceError, UsageError
from graphs.host.scratch import scratch_directory
from tfplace.commands.command_table import COMMANDS, load_flagged
from tfplace.commands.parse import known_command, parse

MOST_SAID = 200
"""Characters of a value that a message repeats."""


class ModelFlags(TypedDict, total=False):
    """Flags that every command with a model has; `tfplace inspect --help` explains them."""

    cluster: str | Cluster
    precision: str
    memory_reserve: float
    device_memory: Sequence[str]
    fetch: Sequence[str]
    feed: str | Mapping[str, Any]
    signature: str
    mode: str
    batch_size: int
    input_shape: Sequence[str]
    tags: str
    op_library: str | os.PathLike[str] | Sequence[str]
    pin: Sequence[str]
    no_split: Sequence[str]
    keep_devices: bool
    free_gradients: bool
    shards: int | str
    cut: str
    batch_axis: Sequence[str]
    cost_cache: bool
    cost_cache_dir: str


class InspectFlags(ModelFlags, total=False):
    """`tfplace inspect --help` explains them."""

    largest_batch: bool


class SimulateFlags(ModelFlags, total=False):
    """Flags of `tfplace simulate`."""

    order: str
    dump_problem: str
    timeline: str


class OptimizeFlags(ModelFlags, total=False):
    """Flags of `tfplace optimize`."""

    output_dir: str
    overwrite: bool
    emit: str
    verify: str
    algorithm: str
    evaluator: str
    policy: str
    budget_seconds: float
    max_trials: int
    max_devices: int
    order: str
    memory_plan: str
    seed: int
    checkpoint_dir: str
    dump_problem: str
    logdir: str


@contextlib.contextmanager
def flag_values(
    command: str, arguments: Sequence[str], given: Mapping[str, object]
) -> Iterator[flags.FlagValues]:
    """What the command line would have parsed; a Cluster is a cluster file while this lasts, arrays
    to feed are an .npz.

    Args:
      given: {flag: value}; None stands for the default, a sequence for a flag given several times.

    Raises:
      UsageError: an unknown command or flag, or a value that it can't have.
    """
    with contextlib.ExitStack() as stack:
        words = []
        kinds = {flag.name: flag.kind for flag in COMMANDS[known_command(command)].flags}
        for name, value in given.items():
            if isinstance(value, Cluster):
                folder = stack.enter_context(scratch_directory())
                value = _cluster_path(value, folder)
                stack.enter_context(said_as(value, "cluster=Cluster(...)"))
            if name == "feed" and isinstance(value, Mapping):
                folder = stack.enter_context(scratch_directory())
                value = _feed_path(value, folder)
                stack.enter_context(said_as(value, "feed={...}"))
            words += _words(name, value, kinds.get(name))
        values = parse(command, [*words, "--", *arguments])[1]
        load_flagged(values)
        yield values


@contextlib.contextmanager
def said_as(path: str, name: str) -> Iterator[None]:
    """Within it, errors that name a file of ours say what it was made of."""
    try:
        yield
    except TfplaceError as error:
        error.args = (str(error).replace(repr(path), name).replace(path, name),)
        raise


def _words(name: str, value: object, kind: str | None) -> list[str]:
    """A flag's words; `kind` is that of the flag table, None for a flag that there isn't.

    Raises:
      UsageError: no word could say such a value.
    """
    if value is None:
        return []
    if isinstance(value, bool) and kind in ("boolean", None):
        return [f"--{'' if value else 'no'}{name}"]
    if isinstance(value, str | numbers.Real | os.PathLike) and not isinstance(value, bool):
        return [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    if isinstance(value, Iterable) and kind in ("multi", None):
        return [f"--{name}={item}" for item in value]
    wanted = f"what --{name} takes on the command line"
    if kind == "multi":
        wanted += ", or a list of it"
    said = f"{name}={value!r}"[:MOST_SAID]
    raise UsageError(f"reading {said}: found {type(value).__name__}; wanted {wanted}")


def _feed_path(arrays: Mapping[str, object], folder: str) -> str:
    """Writes an .npz, whose arrays may have any name, as np.savez's may not.

    Raises:
      UsageError: a value is no array.
    """
    path = os.path.join(folder, "feed.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, given in arrays.items():
            try:
                array = np.asarray(given)
                array = array.astype(np.bytes_) if array.dtype == object else array
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"reading feed: {name!r} is no array: {str(error).splitlines()[0]}; wanted "
                    "{input: array}"
                ) from None
    return path


def _cluster_path(cluster: Cluster, folder: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", cluster.name) or "cluster"
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cluster_to_json(cluster), file)
    return path

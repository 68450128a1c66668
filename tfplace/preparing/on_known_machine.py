"""The problem on the machine as it was measured, where it is here: no command before the first."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from graphs.cluster import Cluster, Interval
from graphs.clusters.discovery import find_cluster
from tfplace.measurement.calibration.known_machine import assumed_file, keep_taught, known_machine
from tfplace.measurement.presence import is_present
from tfplace.preparing.options import ProblemOptions

FOLDER = "machines"
"""Beside the costs that are kept between runs."""


def on_known_machine(
    options: ProblemOptions, scratch: Path, tell: Callable[[str], None], is_taught: bool = True
) -> ProblemOptions:
    """The options with a cluster file of measured figures; as they are where there is none.

    One device has no links, hosts of others are calibrated by `tfplace calibrate` only, and a
    cluster file says itself what it knows.

    Args:
      scratch: where the figures lie for this run, if nothing is kept between runs.
      tell: takes a sentence about what is being done.
      is_taught: whether what earlier runs taught is used, too. A search that is kept and goes on
        has to find the problem as it was.

    Raises:
      ClusterError: there is no such cluster.
    """
    if options.cluster.endswith(".json"):
        return options
    cluster = find_cluster(options.cluster)
    if not _can_be_known(cluster):
        return options
    file = known_machine(cluster, _folder(options, scratch), tell)
    if file is not None and not is_taught:
        file = _untaught(file, scratch)
    return options if file is None else dataclasses.replace(options, cluster=str(file))


def keep_what_was_taught(
    asked: ProblemOptions, used: ProblemOptions, scratch: Path, taught: Mapping[str, Interval]
) -> None:
    """Keeps what real runs have shown of this machine for the next run on it.

    Args:
      asked: the options as they came; a cluster file of the user's is left alone.
      used: what `on_known_machine` made of them.
      taught: {number: value, low, high}.
    """
    if asked.cluster.endswith(".json"):
        return
    cluster = find_cluster(used.cluster)
    if used.cluster != asked.cluster:
        keep_taught(cluster, Path(used.cluster), taught)
    elif _can_be_known(cluster):
        keep_taught(cluster, assumed_file(cluster, _folder(asked, scratch)), taught)


def _untaught(file: Path, scratch: Path) -> Path | None:
    """A machine's measured figures alone; None where they are only assumed."""
    cluster = find_cluster(str(file))
    if not cluster.taught:
        return file
    if not cluster.origin:
        return None
    keep_taught(cluster, scratch / file.name, {})
    return scratch / file.name


def _can_be_known(cluster: Cluster) -> bool:
    is_here = not any(device.address for device in cluster.devices)
    return cluster.num_devices > 1 and is_here and is_present(cluster)


def _folder(options: ProblemOptions, scratch: Path) -> Path:
    return scratch if options.cost_cache is None else Path(options.cost_cache) / FOLDER

"""The problem on the machine as it was measured, where it is here: no command before the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from graphs.clusters.discovery import find_cluster
from tfplace.measurement.calibration.known_machine import known_machine
from tfplace.measurement.presence import is_present
from tfplace.preparing.options import ProblemOptions

FOLDER = "machines"
"""Beside the costs that are kept between runs."""


def on_known_machine(
    options: ProblemOptions, scratch: Path, tell: Callable[[str], None]
) -> ProblemOptions:
    """The options with a cluster file of measured figures; as they are where there is none.

    One device has no links, hosts of others are calibrated by `tfplace calibrate` only, and a
    cluster file says itself what it knows.

    Args:
      options: of the problem.
      scratch: where the figures lie for this run, if nothing is kept between runs.
      tell: takes a sentence about what is being done.

    Raises:
      ClusterError: there is no such cluster.
    """
    if options.cluster.endswith(".json"):
        return options
    cluster = find_cluster(options.cluster)
    is_here = not any(device.address for device in cluster.devices)
    if cluster.num_devices < 2 or not is_here or not is_present(cluster):
        return options
    folder = scratch if options.cost_cache is None else Path(options.cost_cache) / FOLDER
    file = known_machine(cluster, folder, tell)
    return options if file is None else dataclasses.replace(options, cluster=str(file))

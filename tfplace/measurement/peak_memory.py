"""Peak memory of each device in real runs: what ops asked for, and as its allocator counted it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from graphs.cluster import Cluster
from graphs.placement import Infeasible
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.step_limits import StepLimits
from tfplace.measurement.training_run import PrepareRequest, StepRequest, TrainingRun

NUM_STEPS = 3


def measure_peaks(
    variants: Mapping[str, Any], run: TrainingRun, cluster: Cluster, limits: StepLimits
) -> dict[str, Mapping[str, DevicePeak] | Infeasible]:
    """{variant: {device: peak}}: the most that a device held in a step, variables included.

    A device whose allocator does not count, such as one of a task that was not started here, is
    missing. CPU allocators count only what takes 256 KiB or more (see `allocator`).

    Args:
      variants: {name: GraphDef with devices}, run one after the other.
      run: feeds, fetches and initialization, the same for all.
      cluster: where the devices are; workers without addresses are started and ended here.
      limits: time limits and seed; NUM_STEPS steps are made after the first.
    """
    # TensorFlow's plain allocator counts nothing, one with a limit does: all that this host has.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - 1
    devices = [
        dataclasses.replace(device, memory_bytes=min(device.memory_bytes, most))
        for device in cluster.devices
    ]
    cluster = dataclasses.replace(cluster, devices=devices)
    peaks: dict[str, Mapping[str, DevicePeak] | Infeasible] = {}
    for name, graph in variants.items():
        request = PrepareRequest(0, graph.SerializeToString(), run, seed=limits.seed)
        # A fresh process each: what one variant leaves in memory would count for the next.
        with MeasuringProcess(cluster) as process:
            try:
                process.peaks(True, limits.timeout_seconds)  # variables are recorded, too
                process.ask(request, limits)
                process.peaks(True, limits.timeout_seconds)
                process.ask(StepRequest(0, NUM_STEPS), limits)
            except RunFailedError as failure:
                peaks[name] = failure.why
                continue
            peaks[name] = process.peaks(False, limits.timeout_seconds)
    return peaks

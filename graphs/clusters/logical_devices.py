"""The logical devices of this process, where it has cut its CPU or GPUs into several."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.clusters.discovery import PCIE, local_cluster

NAME = "logical_devices"


def logical_cluster() -> Cluster | None:
    """The devices that this process sees as several; None where none is cut.

    Each part has an even share of its device's cores and bandwidth, and the memory that it was
    given. Links are taken to be as fast as those of `local`.

    Raises:
      ClusterError: TensorFlow sees GPUs whose figures can't be read.
    """
    import tensorflow as tf

    whole = {device.name: device for device in local_cluster().devices}
    devices: list[Device] = []
    for kind in ("CPU", "GPU"):
        found = tf.config.list_physical_devices(kind)
        configurations = [tf.config.get_logical_device_configuration(each) for each in found]
        first = len(devices)
        for index, parts in enumerate(configurations):
            number = len(devices) - first
            devices += _parts(whole[f"/device:{kind}:{index}"], number, parts or [None])
    if len(devices) == len(whole):
        return None
    size = len(devices)
    rates, latencies = np.full((size, size), PCIE[0]), np.full((size, size), PCIE[1])
    np.fill_diagonal(rates, np.inf)
    np.fill_diagonal(latencies, 0.0)
    return Cluster(NAME, "duplex", tuple(devices), latencies, rates)


def _parts(device: Device, number: int, parts: list[Any]) -> list[Device]:
    """The device cut as LogicalDeviceConfigurations say, numbered from `number` on."""
    count = len(parts)
    return [
        dataclasses.replace(
            device,
            name=f"/device:{device.type}:{number + index}",
            memory_bytes=_memory_bytes(part) or device.memory_bytes // count,
            cores=max(1, device.cores // count),
            bandwidth_bytes_per_second=device.bandwidth_bytes_per_second / count,
            source=device.source if count == 1 else f"1/{count} of {device.source}",
        )
        for index, part in enumerate(parts)
    ]


def _memory_bytes(part: Any) -> int:
    """What a LogicalDeviceConfiguration's memory_limit, in MiB, says; 0 where it says nothing."""
    limit = getattr(part, "memory_limit", None)
    return int(limit * 2**20) if limit else 0

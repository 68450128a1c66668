"""Checks what the devices of a cluster file may be, each by itself and all together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphs.cluster import Device
from graphs.errors import ClusterError

_GPU_ARCHITECTURE = re.compile(r"(\d{1,2}\.\d)?")
_ADDRESS = re.compile(r"((\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):\d{1,5})?")
_PORTS = range(1, 65536)


def require_sensible(device: Device) -> None:
    """Raises ClusterError where a device's architecture or address has no such form."""
    if device.type == "GPU" and not _GPU_ARCHITECTURE.fullmatch(device.architecture):
        raise ClusterError(
            f"device {device.name!r} has 'architecture' {device.architecture!r}; wanted a compute "
            "capability such as '7.0', or leave it out"
        )
    port = int(device.address.rpartition(":")[2] or 1) if _ADDRESS.fullmatch(device.address) else 0
    if port not in _PORTS:
        raise ClusterError(
            f"device {device.name!r} has 'address' {device.address!r}; wanted HOST:PORT"
        )


def require_together(devices: Sequence[Device]) -> None:
    """Raises ClusterError unless all belong to this host or all to tasks, with a CPU among them."""
    of_tasks = [device.name for device in devices if device.name.startswith("/job:")]
    if of_tasks and len(of_tasks) < len(devices):
        here = next(device.name for device in devices if device.name not in of_tasks)
        raise ClusterError(
            f"{here!r} is a device of this host and {of_tasks[0]!r} one of a task; give all of "
            "them a /job:…/task:…, or none"
        )
    if not any(device.type == "CPU" for device in devices):
        raise ClusterError(
            "there is no CPU among the devices; ops without a GPU kernel need one: add "
            '{"name": "/device:CPU:0", "memory": "64GiB", ...} with its figures'
        )

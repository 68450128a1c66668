"""What a placement's devices are called in the written model, and what loading it takes."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from graphs.cluster import Cluster
from graphs.flat_graph import Origin

LoadingNeeds = Literal["", "workers", "connection"]

_WORKER = re.compile(r"/job:worker/task:\d+(/device:CPU:0)")


def written_devices(devices: Mapping[Origin, str], cluster: Cluster) -> Mapping[Origin, str]:
    """{op: device} as it is written: without the task, where all lie on one worker of this host.

    A process that tfplace starts is no place of its own then: any CPU will do, and the model loads
    without it.

    Args:
      cluster: says which of its tasks have an address, and so are not this host's.
    """
    if loading_needs(cluster, devices.values()):
        return devices
    return {op: _WORKER.sub(r"\1", name) for op, name in devices.items()}


def loading_needs(cluster: Cluster, used: Iterable[str]) -> LoadingNeeds:
    """What a process needs before it can run what was written.

    Returns:
      "" for nothing, "workers" for worker processes as workers:N has them, "connection" for other
      tasks.
    """
    address = {device.name: device.address for device in cluster.devices}
    tasks = [name for name in set(used) if name.startswith("/job:")]
    if not all(_WORKER.fullmatch(name) and not address.get(name) for name in tasks):
        return "connection"
    return "workers" if len(tasks) > 1 else ""

"""On which host each shard of a split step is likely to lie, before anything is placed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from graphs.cluster import Cluster, Device


def hosts_of_shards(cluster: Cluster, num_shards: int) -> tuple[int, ...]:
    """[M] the host of each shard if they are dealt to the devices that compute, one by one.

    Sums are made and weights handed on host by host (rewrite/split/across_shards.py). So it is
    data parallelism that decides which shards share a host, whatever the search finds later.

    Returns:
      Hosts numbered from 0 as the cluster has them; all 0 where it has one.
    """
    devices = [d for d in cluster.devices if d.type != "CPU"] or list(cluster.devices)
    names = _hosts(devices)
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(number[names[shard % len(names)]] for shard in range(num_shards))


def _hosts(devices: Sequence[Device]) -> list[str]:
    """What tells the hosts of devices apart: their addresses or network cards, or their tasks.

    Tasks of one device each and without addresses are processes on this host.
    """
    tasks = [device.name.partition("/device:")[0] for device in devices]
    on_task: dict[str, int] = defaultdict(int)
    for task in tasks:
        on_task[task] += 1
    is_host = max(on_task.values()) > 1
    return [
        device.host or (task if is_host else "")
        for device, task in zip(devices, tasks, strict=True)
    ]

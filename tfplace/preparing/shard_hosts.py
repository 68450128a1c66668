"""On which host and device each shard of a split step is likely to lie, before it is placed."""

from collections import Counter
from collections.abc import Sequence

from graphs.cluster import Cluster, Device
from rewrite.split.states import Place


def places_of_shards(cluster: Cluster, num_shards: int) -> tuple[Place, ...]:
    """[M] host and device of each shard if they are dealt to the devices that compute, one by one.

    Tensors go from one device to the next by that (rewrite/split/across_shards.py). So it is data
    parallelism that decides which shards share a device, whatever the search finds later.

    Returns:
      Hosts, and devices of all hosts, numbered from 0 as the cluster has them.
    """
    devices = [d for d in cluster.devices if d.type != "CPU"] or list(cluster.devices)
    names = _hosts(devices)
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    each = [(number[name], device) for device, name in enumerate(names)]
    return tuple(each[shard % len(each)] for shard in range(num_shards))


def _hosts(devices: Sequence[Device]) -> list[str]:
    """What tells the hosts of devices apart: their addresses or network cards, or their tasks.

    Tasks of one device each and without addresses are processes on this host.
    """
    devices_of_task = Counter(device.task for device in devices)
    is_host = max(devices_of_task.values()) > 1
    return [device.host or (device.task if is_host else "") for device in devices]

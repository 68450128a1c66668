"""A cluster of hosts that are alike: what a file says of one of them, so many times over.

The devices of host T are those of `/job:worker/task:T`. Links inside a host are as the file says;
between hosts all pairs of devices have the figures of `host_link`.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from graphs.cluster import Cluster, Device, TransferWork
from graphs.clusters.json_values import count_of, number_of, require_keys, shown, text_of
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import FloatArray
from graphs.protos import JsonObject

HOSTS_KEYS = ("hosts", "host_link")
MOST_DEVICES = 1024
"""Of all hosts together: arrays of links grow with its square."""


def repeated_on_hosts(host: Cluster, value: JsonObject) -> Cluster:
    """The cluster of so many hosts like this one.

    Args:
      host: what the file says without its hosts.
      value: the file's JSON value, with the key "hosts".

    Raises:
      ClusterError: one sentence about the first thing that is wrong.
    """
    addresses = _addresses(value)
    number = len(addresses)
    if number * host.num_devices > MOST_DEVICES:
        raise ClusterError(
            f"{number} hosts of {host.num_devices} devices are {number * host.num_devices:,} "
            f"devices; wanted at most {MOST_DEVICES:,}: give fewer 'hosts'"
        )
    for device in host.devices:
        if device.name.startswith("/job:") or device.address or device.network:
            raise ClusterError(
                f"device {device.name!r} says which host it is on, and there are 'hosts'; wanted "
                "devices of one host, named like /device:GPU:0, without 'address' and 'network'; "
                "give the hosts' addresses as a list in 'hosts'"
            )
    figures, shared = _host_link(value, number)
    devices = [
        dataclasses.replace(
            device,
            name=f"/job:worker/task:{task}{device.name}",
            address=address,
            network=f"/job:worker/task:{task}" if shared and number > 1 else "",
        )
        for task, address in enumerate(addresses)
        for device in host.devices
    ]
    for device in devices[:: host.num_devices]:
        require_sensible(device)
    return dataclasses.replace(
        host,
        devices=tuple(devices),
        link_bytes_per_second=_tiled(host.link_bytes_per_second, figures[0], number),
        link_latency=_tiled(host.link_latency, figures[1], number),
        transfer_work=_work(host, figures[2:], number),
    )


def _addresses(value: JsonObject) -> Sequence[str]:
    """[H] the address of each host, empty where the file gives only their number."""
    hosts = value["hosts"]
    if not isinstance(hosts, list):
        return [""] * min(count_of("the cluster", value, "hosts", 1), MOST_DEVICES + 1)
    if not hosts or not all(isinstance(each, str) and each for each in hosts):
        raise ClusterError(
            f"the cluster has 'hosts' {shown(hosts)}; wanted their number, or a list of at least "
            'one address such as "10.0.0.1:2222"'
        )
    if len(set(hosts)) < len(hosts):
        raise ClusterError("an address stands twice in 'hosts'; wanted one for each host")
    return hosts


def _host_link(value: JsonObject, number: int) -> tuple[Sequence[float], bool]:
    """The figures of a link between hosts, and whether a host's devices share its network card."""
    if "host_link" not in value:
        if number > 1:
            raise ClusterError(
                f"no link leads from host to host; give the {number} 'hosts' a 'host_link' with "
                "'bytes_per_second' and 'latency_seconds'"
            )
        return [np.inf, *[0.0] * (1 + len(BUSY_FIELD))], False
    where, entry = "'host_link'", value["host_link"]
    require_keys(where, entry, (*DEFAULT_LINK_KEYS, "shared"), DEFAULT_LINK_KEYS[:2])
    shared = entry.get("shared", True)
    if not isinstance(shared, bool):
        raise ClusterError(f"{where} has 'shared' {shown(shared)}; wanted true or false")
    return link_figures(where, entry), shared


def _tiled(inside: FloatArray, between: float, number: int) -> FloatArray:
    """f8[H*D, H*D]: f8[D, D] inside each host, one figure between hosts."""
    size = len(inside)
    figures = np.full((number * size, number * size), between)
    for host in range(number):
        figures[host * size : (host + 1) * size, host * size : (host + 1) * size] = inside
    return figures


def _work(host: Cluster, between: Sequence[float], number: int) -> TransferWork | None:
    """What transfers take of the devices, inside and between hosts; None for nothing."""
    if host.transfer_work is None and not any(between):
        return None
    inside = host.transfer_work or TransferWork.none(host.num_devices)
    fields = zip(BUSY_FIELD.values(), between, strict=True)
    return TransferWork(**{name: _tiled(getattr(inside, name), x, number) for name, x in fields})


BUSY_FIELD = {
    "sender_busy_seconds": "sender_seconds",
    "sender_busy_seconds_per_byte": "sender_seconds_per_byte",
    "receiver_busy_seconds": "receiver_seconds",
    "receiver_busy_seconds_per_byte": "receiver_seconds_per_byte",
}
_REQUIRED_LINK_KEYS = ("bytes_per_second", "latency_seconds")
DEFAULT_LINK_KEYS = (*_REQUIRED_LINK_KEYS, *BUSY_FIELD)
LINK_KEYS = ("from", "to", *DEFAULT_LINK_KEYS)


def links_of(
    value: JsonObject, names: Sequence[str]
) -> tuple[FloatArray, FloatArray, TransferWork | None]:
    """f8[D, D] latency, diagonal 0; f8[D, D] bytes per second, diagonal inf; transfers' work."""
    figures = np.full((len(DEFAULT_LINK_KEYS), len(names), len(names)), np.nan)
    entries = value.get("links", [])
    if not isinstance(entries, list):
        raise ClusterError("'links' has to be a list")
    for position, entry in enumerate(entries):
        where = f"link {position}"
        require_keys(where, entry, LINK_KEYS, required=("from", "to", *_REQUIRED_LINK_KEYS))
        ends = [text_of(where, entry, key, "") for key in ("from", "to")]
        for end in ends:
            if end not in names:
                raise ClusterError(
                    f"{where} names device {end!r}, which there is not" + did_you_mean(end, names)
                )
        source, target = (names.index(end) for end in ends)
        if source == target:
            raise ClusterError(f"{where} leads from {ends[0]!r} to itself")
        if not np.isnan(figures[0, source, target]):
            raise ClusterError(f"{where} is a second link from {ends[0]!r} to {ends[1]!r}")
        figures[:, source, target] = link_figures(where, entry)
    same = np.arange(len(names))
    figures[:, same, same] = np.where(np.arange(len(figures)) == 0, np.inf, 0.0)[:, None]
    missing = np.isnan(figures[0])
    if "default_link" in value:
        where = "'default_link'"
        require_keys(where, value["default_link"], DEFAULT_LINK_KEYS, _REQUIRED_LINK_KEYS)
        figures[:, missing] = np.array(link_figures(where, value["default_link"]))[:, None]
    elif missing.any():
        source, target = np.argwhere(missing)[0]
        raise ClusterError(
            f"no link leads from {names[source]!r} to {names[target]!r}; list it under 'links' "
            "or give a 'default_link'"
        )
    rate, latency, *busy = figures
    return latency, rate, TransferWork(*busy) if np.any(busy) else None


def link_figures(where: str, entry: JsonObject) -> list[float]:
    """The figures of a link, in the order of DEFAULT_LINK_KEYS."""
    rate, *others = DEFAULT_LINK_KEYS
    return [
        number_of(where, entry, rate, 0.0),
        *(number_of(where, entry, key, 0.0, zero=True) for key in others),
    ]


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

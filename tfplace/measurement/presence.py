"""Whether a cluster's devices are here, so that placements can really run."""

import socket

import graphs.late_tensorflow as tf
from graphs.cluster import Cluster
from graphs.clusters import named_clusters
from graphs.clusters.discovery import gpu_split_bytes
from graphs.errors import ClusterError
from tfplace.measurement.device_name import device_key

WORKER_JOB = "worker"
REACH_SECONDS = 3.0
"""For a server of the same network to take a connection."""


def is_present(cluster: Cluster) -> bool:
    """Whether graphs can run on all devices of the cluster now.

    `workers:N` processes are started when they are needed, for CPUs that are of no other host;
    tasks with an address are taken at their word; devices of this host must be visible to
    TensorFlow. A cluster of the catalogue describes hardware by its type, which is not what happens
    to be here. The logical GPUs of `gpu_split:N` are made where they are needed, out of one GPU.
    """
    keys = [device_key(device.name) for device in cluster.devices]
    if any(key.job for key in keys):
        addressed = all(device.address for device in cluster.devices)
        return addressed or all(
            key.job == WORKER_JOB and key.type == "CPU" and not device.network
            for key, device in zip(keys, cluster.devices, strict=True)
        )
    if cluster.name == "local":
        return True
    if gpu_split_bytes(cluster):
        return ("GPU", 0) in _visible()
    return (
        cluster.name not in named_clusters.names()
        and {(k.type, k.index) for k in keys} <= _visible()
    )


def require_present(cluster: Cluster, doing: str, remedy: str) -> None:
    """Raises ClusterError where a cluster can only be simulated; asked before ops are priced."""
    failure = unreached(cluster)
    if not is_present(cluster):
        failure = f"its devices are not present on this machine; {remedy}"
    if failure:
        raise ClusterError(f"{doing} {cluster.name}: {failure}")


def unreached(cluster: Cluster) -> str:
    """Why a task's server can't be reached; empty where all listen, or none has an address."""
    addresses = dict.fromkeys(device.address for device in cluster.devices if device.address)
    return next(filter(None, map(no_answer, addresses)), "")


def no_answer(address: str) -> str:
    """Why nothing listens at host:port; empty where something does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"nothing answers at {address} ({error}); start its server, or mend the address"
    return ""


def _visible() -> set[tuple[str, int]]:
    gpus = tf.config.list_physical_devices("GPU")
    return {("CPU", 0), *(("GPU", index) for index in range(len(gpus)))}

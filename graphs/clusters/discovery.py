"""Finds the cluster that `--cluster` means: this host, a named one, a file, workers, or TF_CONFIG.

The figures of devices that are present are those of `this_host`. The links have the defaults below
until `tfplace calibrate` measures them.
"""

import dataclasses
import json
import os
import re
from collections.abc import Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs.cluster import Cluster, Device
from graphs.clusters import named_clusters
from graphs.clusters.cluster_file import read_cluster
from graphs.clusters.json_values import parse_bytes
from graphs.clusters.this_host import local_gpus, this_cpu
from graphs.errors import ClusterError, UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.protos import Json

OTHER_FORMS = ("local", "workers:N", "gpu_split:N", "tf_config")

LOOPBACK = (2e9, 0.3e-3)
"""Bytes per second and latency of TensorFlow's gRPC between processes of one host: 4 MB take
2 to 3 ms."""
NETWORK = (1e9, 0.5e-3)
"""The same between hosts on 10 Gb/s Ethernet, an assumption."""
PCIE = (10e9, 30e-6)
"""The same between a host and its GPUs, or two of them, an assumption."""

SPLIT_SHARE = 0.9
"""The share of a GPU's memory that its logical GPUs get together; CUDA takes some of it."""
_SPLIT_NAME = re.compile(r"gpu_split:([1-9]\d?)")

_JOB_ORDER = ("chief", "master", "worker", "ps", "evaluator")


def find_cluster(spec: str) -> Cluster:
    """The cluster that a `--cluster` value means.

    Args:
      spec: "local", a named cluster, a path that ends in ".json", "workers:N", "gpu_split:N"
        or "tf_config".

    Raises:
      ClusterError: there is no such cluster, or what describes it is malformed.
    """
    if spec == "local":
        return local_cluster()
    if spec == "tf_config":
        return tf_config_cluster(os.environ.get("TF_CONFIG", ""))
    if spec.endswith(".json"):
        return read_cluster(spec)
    if spec.startswith("workers:") or spec == "workers":
        return workers_cluster(spec.partition(":")[2])
    if spec.startswith("gpu_split:") or spec == "gpu_split":
        return gpu_split_cluster(spec)
    if spec in named_clusters.names():
        return named_clusters.named(spec)
    known = (*OTHER_FORMS, *named_clusters.names())
    raise ClusterError(
        f"finding cluster {spec!r}: there is none; wanted one of {', '.join(known)}, "
        f"or a cluster file that ends in .json{did_you_mean(spec, known)}"
    )


def with_precision(cluster: Cluster, precision: str) -> Cluster:
    """The cluster with GPUs that multiply so; those of one efficiency stay as they are."""
    devices = [
        dataclasses.replace(device, precision=precision if device.precision else "")
        for device in cluster.devices
    ]
    return dataclasses.replace(cluster, devices=tuple(devices)) if precision else cluster


def with_memory(cluster: Cluster, limits: Sequence[str]) -> Cluster:
    """The cluster with devices of no more memory than "4GiB" says, or "NAME=4GiB" of one.

    Raises:
      UsageError: a limit is no size, or names no device of the cluster.
    """
    most: dict[str, int] = {}
    for limit in limits:
        name, _, size = limit.rpartition("=")
        if name and name not in cluster.device_names:
            hint = did_you_mean(name, cluster.device_names)
            raise UsageError(
                f"reading --device_memory={limit}: {cluster.name} has no device {name!r}; wanted "
                f"one of {', '.join(cluster.device_names)}{hint}"
            )
        where = f"reading --device_memory={limit}: the size"
        most[name] = parse_bytes(where, size, UsageError)
    devices = [
        dataclasses.replace(
            device,
            memory_bytes=min(
                device.memory_bytes, most.get(device.name, most.get("", device.memory_bytes))
            ),
        )
        for device in cluster.devices
    ]
    return dataclasses.replace(cluster, devices=tuple(devices)) if limits else cluster


def local_cluster() -> Cluster:
    """The CPU and the GPUs that TensorFlow sees on this host.

    Raises:
      ClusterError: TensorFlow sees GPUs whose figures can't be read.
    """
    gpus = tf.config.list_physical_devices("GPU")
    devices = [this_cpu("/device:CPU:0", len(os.sched_getaffinity(0)))]
    if gpus:
        devices += local_gpus(len(gpus))
    return _uniform("local", devices, *PCIE)


def workers_cluster(count: str) -> Cluster:
    """N worker processes of this host, one core each, which share its memory evenly.

    Raises:
      ClusterError: `count` is no whole number of at least 1.
    """
    if not re.fullmatch(r"[1-9]\d{0,3}", count):
        raise ClusterError(
            f"finding cluster 'workers:{count}': {count!r} is no number of workers; "
            "wanted a form like workers:2"
        )
    one_core = this_cpu("", 1)
    memory = one_core.memory_bytes // int(count)
    devices = [
        dataclasses.replace(
            one_core, name=f"/job:worker/task:{task}/device:CPU:0", memory_bytes=memory
        )
        for task in range(int(count))
    ]
    return _uniform(f"workers:{count}", devices, *LOOPBACK)


def gpu_split_cluster(spec: str) -> Cluster:
    """The CPU, and this host's first GPU as N logical GPUs with an equal share of it each.

    TensorFlow runs ops of logical GPUs on streams of their own, but the kernels share one
    device: it shows that placements run, not what several GPUs would gain.

    Args:
      spec: "gpu_split:N".

    Raises:
      ClusterError: N is no whole number from 1 to 99, or TensorFlow sees no GPU.
    """
    match = _SPLIT_NAME.fullmatch(spec)
    if match is None:
        raise ClusterError(
            f"finding cluster {spec!r}: wanted gpu_split:N with 1 to 99 logical GPUs, "
            "as gpu_split:2"
        )
    count = int(match.group(1))
    here = local_cluster()
    whole = next((device for device in here.devices if device.type == "GPU"), None)
    if whole is None:
        raise ClusterError(
            f"finding cluster {spec!r}: TensorFlow sees no GPU on this host; wanted one to split; "
            f"try workers:{count}, or a named cluster to simulate"
        )
    memory = int(whole.memory_bytes * SPLIT_SHARE) // count
    parts = [_part(whole, number, count, memory) for number in range(count)]
    return _uniform(spec, [here.devices[0], *parts], *PCIE)


def logical_cluster() -> Cluster | None:
    """The devices that this process sees as several; None where none is cut.

    Each part has an even share of its device's cores and bandwidth, and the memory that it was
    given. Links are taken to be as fast as those of `local`.

    Raises:
      ClusterError: TensorFlow sees GPUs whose figures can't be read.
    """
    whole = {device.name: device for device in local_cluster().devices}
    devices: list[Device] = []
    for kind in ("CPU", "GPU"):
        first = len(devices)
        for index, found in enumerate(tf.config.list_physical_devices(kind)):
            device = whole[f"/device:{kind}:{index}"]
            parts = tf.config.get_logical_device_configuration(found) or [None]
            for part in parts:
                limit = getattr(part, "memory_limit", None)  # in MiB
                memory = int(limit * 2**20) if limit else device.memory_bytes // len(parts)
                devices.append(_part(device, len(devices) - first, len(parts), memory))
    return None if len(devices) == len(whole) else _uniform("logical_devices", devices, *PCIE)


def _part(device: Device, number: int, count: int, memory_bytes: int) -> Device:
    """One of `count` even parts of a device."""
    return dataclasses.replace(
        device,
        name=f"/device:{device.type}:{number}",
        memory_bytes=memory_bytes,
        cores=max(1, device.cores // count),
        bandwidth_bytes_per_second=device.bandwidth_bytes_per_second / count,
        source=device.source if count == 1 else f"1/{count} of {device.source}",
    )


def gpu_split_bytes(cluster: Cluster) -> tuple[int, ...]:
    """Memory of each logical GPU that this host's first one is split into; none for no split.

    The cluster's name says whether it is split, also in a file that `tfplace calibrate` wrote.
    """
    if not _SPLIT_NAME.fullmatch(cluster.name):
        return ()
    return tuple(device.memory_bytes for device in cluster.devices if device.type == "GPU")


def tf_config_cluster(text: str) -> Cluster:
    """One CPU for each task of TF_CONFIG, which says nothing of GPUs and speed.

    Every task is taken to be like this host, and each device's `source` says so. A cluster file
    with addresses can describe others.

    Raises:
      ClusterError: TF_CONFIG is not set or malformed.
    """
    where = "reading the environment variable TF_CONFIG"
    if not text:
        raise ClusterError(f"{where}: it is not set; wanted the JSON of a TensorFlow cluster")
    try:
        value = json.loads(text)
        jobs = value.get("cluster") if isinstance(value, dict) else None
        if not isinstance(jobs, dict):
            raise ValueError("it has no jobs under 'cluster'")
        in_order = sorted(jobs, key=lambda job: ([*_JOB_ORDER, job].index(job), job))
        addresses = {job: _addresses(job, jobs[job]) for job in in_order}
    except (ValueError, RecursionError) as error:
        raise ClusterError(
            f'{where}: {error}; wanted {{"cluster": {{"worker": ["host:port", ...]}}, ...}} in JSON'
        ) from error
    here = this_cpu("", len(os.sched_getaffinity(0)))
    devices = [
        dataclasses.replace(
            here,
            name=f"/job:{job}/task:{task}/device:CPU:0",
            address=address,
            source="TF_CONFIG names the address only; taken to be like this host",
        )
        for job, tasks in addresses.items()
        for task, address in sorted(tasks.items())
    ]
    if not devices:
        raise ClusterError(f"{where}: it names no task")
    hosts = {device.host for device in devices}
    return _uniform("tf_config", devices, *(LOOPBACK if len(hosts) == 1 else NETWORK))


def _addresses(job: str, value: Json) -> dict[int, str]:
    """{task: host:port} of a job, also of the sparse form {"3": "host:port"}."""
    tasks = dict(enumerate(value)) if isinstance(value, list) else value
    if not re.fullmatch(r"[A-Za-z]\w*", job, re.ASCII):
        raise ValueError(f"{job!r} is no name of a job")
    if not isinstance(tasks, dict) or not all(
        isinstance(a, str) and ":" in a for a in tasks.values()
    ):
        raise ValueError(f"the job {job!r} has {value!r}, not a list of host:port")
    if not all(str(task).isdecimal() for task in tasks):
        raise ValueError(f"the job {job!r} has tasks {', '.join(tasks)}, not numbers")
    return {int(task): address for task, address in tasks.items()}


def _uniform(name: str, devices: Sequence[Device], rate: float, latency: float) -> Cluster:
    """A cluster whose links are all alike."""
    size = len(devices)
    rates, latencies = np.full((size, size), rate), np.full((size, size), latency)
    np.fill_diagonal(rates, np.inf)
    np.fill_diagonal(latencies, 0.0)
    return Cluster(name, "duplex", tuple(devices), latencies, rates)

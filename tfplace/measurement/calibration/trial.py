"""Tries a cluster's devices: does each run what is placed on it, hold its limit, and reach others?

That is what a new machine is asked first. A device that fails is tried again without the others,
since one task that nobody reaches fails the steps of all.
"""

import dataclasses
import itertools
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.clusters import named_clusters
from graphs.errors import ClusterError
from tfplace.measurement.calibration.link_figures import measure_link
from tfplace.measurement.calibration.probe_graphs import held_at_once, products_on
from tfplace.measurement.calibration.probing import Prober
from tfplace.measurement.device_name import device_key
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.step_limits import StepLimits
from tfplace.measurement.training_run import PeersRequest, PrepareRequest, TraceRequest

LIMITS = StepLimits(
    warmup_steps=1, min_steps=3, max_steps=5, timeout_seconds=20.0, prepare_timeout_seconds=40.0
)
SIDE, DEPTH = 64, 2
LINK_SIZES = (64, 1 << 18, 1 << 22)
LINK_SECONDS = 1.0
MOST_LINKS = 20
"""With more, only those from the first device to the others and back are tried."""
BEYOND_LIMIT = 1.25
BEYOND_ANY_HOST = 1 << 46
"""Bytes that are refused at once where nothing but the host limits a CPU."""
REACH_SECONDS = 3.0
_NO_SUCH_DEVICE = re.compile(r"explicitly assigned to .* available devices are \[ (.*?) \]")


@dataclasses.dataclass(frozen=True)
class DeviceTrial:
    """What one device did.

    Attributes:
      device: its name in the cluster.
      failure: why it runs nothing; empty where it runs what is placed on it.
      asked_bytes: what was asked of its allocator, more than it may give; 0 where not tried.
      limit_failure: what went wrong then; empty where it refused, and ran on afterwards.
    """

    device: str
    failure: str
    asked_bytes: int = 0
    limit_failure: str = ""


@dataclasses.dataclass(frozen=True)
class LinkTrial:
    """What a transfer from one device to another did.

    Attributes:
      source, target: the devices' names.
      bytes_per_second, latency_seconds: as measured in a second; None where it failed.
      failure: why nothing arrived; empty where it did.
    """

    source: str
    target: str
    bytes_per_second: float | None
    latency_seconds: float | None
    failure: str = ""


@dataclasses.dataclass(frozen=True)
class Trial:
    """What all devices and links did.

    Attributes:
      devices, links: each one that was tried.
      peers: {GPU: the GPUs whose memory it reads itself}, of this host's.
    """

    devices: Sequence[DeviceTrial]
    links: Sequence[LinkTrial]
    peers: Mapping[str, Sequence[str]]

    @property
    def works(self) -> bool:
        return not any(each.failure or each.limit_failure for each in self.devices) and not any(
            each.failure for each in self.links
        )


def try_devices(cluster: Cluster) -> Trial:
    """Runs a few small steps on each device, and sends tensors between them: seconds in all.

    Raises:
      ClusterError: the cluster is one of the catalogue, which describes hardware that isn't here.
    """
    if cluster.name in named_clusters.names():
        raise ClusterError(
            f"trying the devices of {cluster.name}: it describes hardware by its type, which is "
            "not what is here; wanted local, workers:N, gpu_split:N, tf_config or a cluster file"
        )
    devices = [DeviceTrial(each.name, _unreachable(each)) for each in cluster.devices]
    unreachable = [each for each in devices if each.failure]
    if unreachable:  # a server whose own cluster has a task that doesn't answer waits for that
        why = f"not tried, since {unreachable[0].device} can't be reached"
        rest = [dataclasses.replace(each, failure=why) for each in devices if not each.failure]
        return Trial([*unreachable, *rest], [], {})
    with MeasuringProcess(cluster) as process:
        devices = [_tried(each, process) for each in cluster.devices]
        if not any(each.failure for each in devices):
            return Trial(devices, list(_links(cluster, process)), _peers(process))
    devices = []
    for device in cluster.devices:
        with MeasuringProcess(_alone(cluster, device)) as process:
            devices.append(_tried(device, process))
    return Trial(devices, [], {})


def _unreachable(device: Device) -> str:
    """Why nothing answers at the address of a device's task; empty where something does."""
    host, _, port = device.address.rpartition(":")
    if not device.address:
        return ""
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"nothing answers at {device.address} ({error})"
    return ""


def _alone(cluster: Cluster, device: Device) -> Cluster:
    name = cluster.name
    return Cluster(name, "duplex", (device,), np.zeros((1, 1)), np.full((1, 1), np.inf))


def _tried(device: Device, process: MeasuringProcess) -> DeviceTrial:
    probe = products_on([device.name], SIDE, DEPTH)
    graph = probe.graph_def.SerializeToString()
    small = PrepareRequest(0, graph, probe.run, "tf.function")
    try:
        # Which device an op ran on is what a Session's trace says.
        process.ask(PrepareRequest(0, graph, probe.run, "session"), LIMITS)
        (trace,) = process.ask(TraceRequest(0, 1), LIMITS)
        products = zip(trace.op_names, trace.devices, strict=True)
        elsewhere = {where for name, where in products if "MatMul" in name} - {device.name}
        if elsewhere:
            return DeviceTrial(device.name, f"its ops ran on {', '.join(sorted(elsewhere))}")
        process.ask(small, LIMITS)
    except (RunFailedError, ClusterError) as failed:
        return DeviceTrial(device.name, _reason(failed, device))
    asked = _more_than_it_has(device)
    probe = held_at_once(device.name, asked)
    large = PrepareRequest(1, probe.graph_def.SerializeToString(), probe.run, "tf.function")
    failure = f"it gave out {asked:,} bytes, more than its limit"
    try:
        process.ask(large, LIMITS)
    except RunFailedError as failed:
        failure = "" if failed.why.reason == "memory" else _reason(failed, device)
    try:
        process.ask(small, LIMITS)
    except (RunFailedError, ClusterError) as failed:
        failure = f"after it ran out of memory it runs nothing more: {_reason(failed, device)}"
    return DeviceTrial(device.name, "", asked, failure)


def _more_than_it_has(device: Device) -> int:
    """Bytes; a CPU has a limit of its own only in a worker that is started here."""
    key = device_key(device.name)
    if key.type == "GPU" or (key.job and not device.address):
        return int(BEYOND_LIMIT * device.memory_bytes)
    return BEYOND_ANY_HOST


def _links(cluster: Cluster, process: MeasuringProcess) -> Iterator[LinkTrial]:
    names = cluster.device_names
    pairs = list(itertools.permutations(names, 2))
    if len(pairs) > MOST_LINKS:
        pairs = [pair for pair in pairs if names[0] in pair]
    for source, target in pairs:
        try:
            link = measure_link(
                source, target, LINK_SIZES, Prober(process, cluster, LIMITS), LINK_SECONDS
            )
            yield LinkTrial(source, target, link.bytes_per_second, link.latency_seconds)
        except (ClusterError, ValueError) as error:
            why = str(error).partition(": ")[2].partition("; see that")[0]
            yield LinkTrial(source, target, None, None, why)


def _peers(process: MeasuringProcess) -> Mapping[str, Sequence[str]]:
    answer: Any = process.request(PeersRequest(), LIMITS.timeout_seconds)
    return answer if isinstance(answer, dict) else {}


def _reason(failed: RunFailedError | ClusterError, device: Device) -> str:
    if isinstance(failed, ClusterError):
        return str(failed)
    if missing := _NO_SUCH_DEVICE.search(failed.why.message):
        return f"TensorFlow has no such device here; it has {missing[1]}"
    if failed.why.reason == "timeout" and device.address:
        return (
            f"{failed.why.message}: what listens at {device.address} is no TensorFlow server, "
            "is stuck, or waits for another task that is"
        )
    return f"{failed.why.reason}: {failed.why.message}"

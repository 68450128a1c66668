"""Tries a cluster's devices: does each run what is placed on it, hold its limit, and reach others?

That is what a new machine is asked first. A device that fails is tried again without the others.
Servers that run already are asked before, one by one, which devices they have, and whom they reach:
a step on one of them waits for all tasks of that server's own cluster, and does not say for whom.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.clusters import named_clusters
from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tfplace.measurement import training_run
from tfplace.measurement.calibration.link_figures import measure_link
from tfplace.measurement.calibration.probe_graphs import held_at_once, products_on
from tfplace.measurement.calibration.probing import ProbeFailedError, Prober
from tfplace.measurement.device_name import device_key, task_prefix
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.presence import REACH_SECONDS, no_answer

LIMITS = training_run.StepLimits(
    warmup_steps=1, min_steps=3, max_steps=5, timeout_seconds=20.0, prepare_timeout_seconds=40.0
)
SIDE, DEPTH = 64, 2
LINK_SIZES = (64, 1 << 12, 1 << 18, 1 << 22)
LINK_COPIES = 8
"""Of what is sent, a device may hold so many: the variable, what arrives, and hops beside."""
LINK_SECONDS = 1.0
MOST_LINKS = 20
"""With more, only those from the first device to the others and back are tried."""
BEYOND_LIMIT = 1.25
BEYOND_ANY_HOST = 1 << 46
"""Bytes that are refused at once where nothing but the host limits a CPU."""
_NO_SUCH_DEVICE = re.compile(r"explicitly assigned to .* available devices are \[ (.*?) \]")


@dataclasses.dataclass(frozen=True)
class DeviceTrial:
    """What one device did.

    Attributes:
      device: its name in the cluster.
      failure: why it runs nothing; empty where it runs what is placed on it, or was not tried,
        since a step would wait for what can't be reached.
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
      bytes_per_second, latency_seconds: as measured in a second; None where it failed, or took
        less than can be told from noise.
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
      ClusterError: the cluster is one of the catalogue, which describes hardware that isn't here,
        or its workers could not be started.
    """
    if cluster.name in named_clusters.names():
        raise ClusterError(
            f"trying the devices of {cluster.name}: it describes hardware by its type, which is "
            "not what is here; wanted local, workers:N, gpu_split:N, tf_config or a cluster file"
        )
    with MeasuringProcess(cluster) as process:
        if unreached := _unreached(cluster, process):
            return unreached
        devices = [_tried(each, process) for each in cluster.devices]
        if not any(each.failure for each in devices):
            links = list(_links(cluster, process))
            peers = process.request(training_run.PeersRequest(), LIMITS.timeout_seconds)
            return Trial(devices, links, peers if isinstance(peers, dict) else {})
    devices = []
    for device in cluster.devices:
        with MeasuringProcess(_alone(cluster, device)) as process:
            devices.append(_tried(device, process))
    return Trial(devices, [], {})


def _unreached(cluster: Cluster, process: MeasuringProcess) -> Trial | None:
    """What servers that run already don't have or don't reach; None where nothing is amiss."""
    first = {each.address: each.name for each in reversed(cluster.devices) if each.address}
    has = {address: _devices_at(address, process) for address in first}
    served = {task_prefix(name): address for address, name in first.items()}
    devices = []
    for name in cluster.device_names:  # a file may say a task's address but once
        address = served.get(task_prefix(name))
        failure = _missing(name, address, has[address]) if address else ""
        devices.append(DeviceTrial(name, failure))
    links = []
    if not any(each.failure for each in devices):
        address_of = {name: address for address, name in first.items()}
        for source, target in _pairs(list(address_of)):
            failure = _cut_off(source, address_of[target], process)
            links += [LinkTrial(source, target, None, None, failure)] if failure else []
    trial = Trial(devices, links, {})
    return None if trial.works else trial


def _devices_at(address: str, process: MeasuringProcess) -> Sequence[str] | str:
    """The devices of the server at an address, or why there is none."""
    if failure := no_answer(address):
        return failure
    names = _asked(address, "", process)
    if not isinstance(names, Infeasible):
        return names
    if names.reason == "timeout":
        return (
            f"what listens at {address} gives {names.message}: it is stopped or stuck, or no "
            "TensorFlow server; let it go on, or start a server there"
        )
    return f"what listens at {address} is no TensorFlow server ({names.message}); start one there"


def _asked(address: str, task: str, process: MeasuringProcess) -> Sequence[str] | Infeasible:
    request = training_run.ReachRequest(address, task, REACH_SECONDS)
    return process.request(request, LIMITS.prepare_timeout_seconds)


def _missing(name: str, address: str, has: Sequence[str] | str) -> str:
    """Why a device is not at its task's address; empty where it is."""
    if isinstance(has, str):
        return has
    keys = [device_key(each) for each in has]
    wanted = device_key(name)
    tasks = sorted({f"/job:{key.job}/task:{key.task}" for key in keys})
    if f"/job:{wanted.job}/task:{wanted.task}" not in tasks:
        return (
            f"the server at {address} is {', '.join(tasks)}; mend the address, or start "
            "that server as this task"
        )
    if wanted not in keys:
        there = ", ".join(f"{key.type}:{key.index}" for key in keys)
        return f"the server at {address} has no such device; it has {there}"
    return ""


def _cut_off(source: str, address: str, process: MeasuringProcess) -> str:
    """Why the server at an address gets nothing of a device's task; empty where it does."""
    task = task_prefix(source)
    names = _asked(address, task, process)
    if isinstance(names, Infeasible):
        found = f"it gets {names.message}"
    elif any(name.startswith(f"{task}/") for name in names):
        return ""
    else:
        found = "its own cluster has no such task"
    return (
        f"the server at {address} does not reach that task: {found}; start it with the addresses "
        "of this cluster, and let nothing block its way there"
    )


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    pairs = list(itertools.permutations(names, 2))
    return pairs if len(pairs) <= MOST_LINKS else [pair for pair in pairs if names[0] in pair]


def _alone(cluster: Cluster, device: Device) -> Cluster:
    return Cluster(cluster.name, "duplex", (device,), np.zeros((1, 1)), np.full((1, 1), np.inf))


def _tried(device: Device, process: MeasuringProcess) -> DeviceTrial:
    probe = products_on([device.name], SIDE, DEPTH)
    graph = probe.graph_def.SerializeToString()
    small = training_run.PrepareRequest(0, graph, probe.run, "tf.function")
    try:
        # Which device an op ran on is what a Session's trace says.
        process.ask(training_run.PrepareRequest(0, graph, probe.run, "session"), LIMITS)
        (trace,) = process.ask(training_run.TraceRequest(0, 1), LIMITS)
        products = zip(trace.op_names, trace.devices, strict=True)
        elsewhere = {where for name, where in products if "MatMul" in name} - {device.name}
        if elsewhere:
            return DeviceTrial(device.name, f"its ops ran on {', '.join(sorted(elsewhere))}")
        process.ask(small, LIMITS)
    except RunFailedError as failed:
        return DeviceTrial(device.name, _reason(failed))
    asked = _more_than_it_has(device)
    probe = held_at_once(device.name, asked)
    large = training_run.PrepareRequest(
        1, probe.graph_def.SerializeToString(), probe.run, "tf.function"
    )
    failure = f"it gave out {asked:,} bytes, more than its limit"
    try:
        process.ask(large, LIMITS)
    except RunFailedError as failed:
        failure = "" if failed.why.reason == "memory" else _reason(failed)
    try:
        process.ask(small, LIMITS)
    except RunFailedError as failed:
        failure = f"after it ran out of memory it runs nothing more: {_reason(failed)}"
    return DeviceTrial(device.name, "", asked, failure)


def _more_than_it_has(device: Device) -> int:
    """Bytes; a CPU has a limit of its own only in a worker that is started here."""
    key = device_key(device.name)
    if key.type == "GPU" or (key.job and not device.address):
        return int(BEYOND_LIMIT * device.memory_bytes)
    return BEYOND_ANY_HOST


def _links(cluster: Cluster, process: MeasuringProcess) -> Iterator[LinkTrial]:
    least = min(each.memory_bytes for each in cluster.devices)  # where one lacks it, steps hang
    sizes = [size for size in LINK_SIZES if LINK_COPIES * size <= least] or LINK_SIZES[:2]
    for source, target in _pairs(cluster.device_names):
        try:
            prober = Prober(process, cluster, LIMITS)
            link = measure_link(source, target, sizes, prober, LINK_SECONDS)
            yield LinkTrial(source, target, link.bytes_per_second, link.latency_seconds)
        except ProbeFailedError as failed:
            why = f"{failed.why.reason}: {failed.why.message}"
            yield LinkTrial(source, target, None, None, why)
        except ValueError:  # no time above 0: noise
            yield LinkTrial(source, target, None, None)


def _reason(failed: RunFailedError) -> str:
    if missing := _NO_SUCH_DEVICE.search(failed.why.message):
        return f"TensorFlow has no such device here; it has {missing[1]}"
    return f"{failed.why.reason}: {failed.why.message}"

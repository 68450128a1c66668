"""Reads and writes cluster files: JSON as in the contract, section 7, with no unknown key.

Every key but `name`, `devices` and the devices' `name` and `memory` has a default. Links are
directed. A pair of devices that is not listed has `default_link`, which must then be given. With
`hosts`, the file describes one of several hosts (graphs/clusters/hosts.py). What `calibrate` adds,
docs/clusters.md lists; `optimize` adds `taught`, {number: [value, low, high]}, to the file that it
keeps of a machine (graphs/machine_numbers.py).
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping

from graphs.cluster import COMMUNICATION_RULES, Cluster, Device, Interval, TransferWork
from graphs.clusters import hosts
from graphs.clusters.json_values import (
    count_of,
    number_of,
    parse_bytes,
    require_keys,
    text_of,
    unique_keys,
)
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean, did_you_mean_file
from graphs.host.whole_file import read_text
from graphs.machine_numbers import is_name
from graphs.protos import Json, JsonObject

_CLUSTER_SECONDS = ("step_overhead_seconds", "fetch_seconds")
CLUSTER_KEYS = (
    *("name", "communication", "devices", "links", "default_link", "origin", *hosts.HOSTS_KEYS),
    *(*_CLUSTER_SECONDS, "taught"),
)
DEVICE_KEYS = tuple(
    "memory" if field.name == "memory_bytes" else field.name for field in dataclasses.fields(Device)
)
_COUNT_KEYS = ("slots", "cores", "frequency_mhz", "executor_threads")
_TEXT_KEYS = ("architecture", "address", "source", "network")
_MEASURED_DEVICE_KEYS = ("op_seconds", "step_seconds", "compute_slowdown", "memory_slowdown")
_LEFT_OUT_KEYS = (*_MEASURED_DEVICE_KEYS, "executor_threads", "network", "precision")
PRECISIONS = ("tf32", "fp32")
_ORIGIN = re.compile(r"local|tf_config|(workers|gpu_split):[1-9]\d*")
_DEVICE_NAME = re.compile(r"(/job:[A-Za-z0-9_]+/(replica:\d+/)?task:\d+)?/device:([A-Z]+):\d+")
_TAUGHT_WANTED = (
    "wanted {number: [value, low, high]} with 0 <= low <= value <= high, as optimize keeps it"
)


def read_cluster(path: str) -> Cluster:
    """Reads a cluster file; ClusterError: it can't be read, is no JSON, or says what can't be."""
    try:
        return cluster_from_json(_from_text(read_text(path)))
    except OSError as error:
        raise ClusterError(
            f"reading cluster file {path}: it can't be read ({error.strerror}); give the path of a "
            f"file, or one of the clusters that `tfplace devices` lists{did_you_mean_file(path)}"
        ) from None
    except UnicodeDecodeError as error:
        raise ClusterError(f"reading cluster file {path}: it is no text: {error}") from None
    except ClusterError as error:
        raise ClusterError(f"reading cluster file {path}: {error}") from error


def _from_text(text: str) -> Json:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise ClusterError(f"not JSON: {error}") from error


def cluster_to_json(cluster: Cluster) -> dict[str, Json]:
    """The JSON value of a cluster file, with every link listed and memory in bytes.

    Measured figures are left out where they are as if nobody had measured them.
    """
    devices = [
        {
            key: device.memory_bytes if key == "memory" else getattr(device, key)
            for key in DEVICE_KEYS
            if key not in _LEFT_OUT_KEYS or getattr(device, key) != getattr(Device, key)
        }
        for device in cluster.devices
    ]
    links = [
        {
            "from": source.name,
            "to": target.name,
            "bytes_per_second": float(cluster.link_bytes_per_second[s, t]),
            "latency_seconds": float(cluster.link_latency[s, t]),
            **_busy_to_json(cluster.transfer_work, s, t),
        }
        for s, source in enumerate(cluster.devices)
        for t, target in enumerate(cluster.devices)
        if s != t
    ]
    head: dict[str, Json] = {"name": cluster.name, "communication": cluster.communication}
    if cluster.origin:
        head["origin"] = cluster.origin
    for key in _CLUSTER_SECONDS:
        if getattr(cluster, key):
            head[key] = getattr(cluster, key)
    if cluster.taught:
        head["taught"] = {name: list(values) for name, values in cluster.taught.items()}
    return {**head, "devices": devices, "links": links}


def _busy_to_json(work: TransferWork | None, source: int, target: int) -> dict[str, float]:
    if work is None:
        return {}
    return {
        key: float(getattr(work, field)[source, target]) for key, field in hosts.BUSY_FIELD.items()
    }


def cluster_from_json(value: Json) -> Cluster:
    """The cluster of a parsed cluster file.

    Raises:
      ClusterError: one sentence about the first thing that is wrong.
    """
    require_keys("the cluster", value, CLUSTER_KEYS, required=("name", "devices"))
    name = text_of("the cluster", value, "name", "")
    if not name:
        raise ClusterError("the cluster's 'name' is empty")
    communication = text_of("the cluster", value, "communication", "duplex")
    if communication not in COMMUNICATION_RULES:
        raise ClusterError(
            f"'communication' is {communication!r}; wanted one of {', '.join(COMMUNICATION_RULES)}"
            + did_you_mean(communication, COMMUNICATION_RULES)
        )
    entries = value["devices"]
    if not isinstance(entries, list) or not entries:
        raise ClusterError("'devices' has to be a list of at least one device")
    devices = tuple(_device(position, entry) for position, entry in enumerate(entries))
    device_names = [device.name for device in devices]
    for device_name in device_names:
        if device_names.count(device_name) > 1:
            raise ClusterError(f"device {device_name!r} stands there twice; names have to differ")
    for device in devices:
        hosts.require_sensible(device)
    hosts.require_together(devices)
    origin = text_of("the cluster", value, "origin", "")
    if origin and _ORIGIN.fullmatch(origin) is None:
        raise ClusterError(
            f"the cluster's 'origin' is {origin!r}; wanted what was calibrated: local, workers:N, "
            "gpu_split:N or tf_config"
        )
    latency, rate, work = hosts.links_of(value, device_names)
    overhead, fetch = (
        number_of("the cluster", value, key, 0.0, zero=True) for key in _CLUSTER_SECONDS
    )
    taught = taught_of(value)
    host = Cluster(
        name, communication, devices, latency, rate, origin, overhead, fetch, work, taught
    )
    if "hosts" in value:
        return hosts.repeated_on_hosts(host, value)
    if "host_link" in value:
        raise ClusterError("there is a 'host_link', but no 'hosts'; say how many hosts there are")
    return host


def _device(position: int, value: Json) -> Device:
    """The device of one entry of "devices"."""
    where = f"device {position}"
    require_keys(where, value, DEVICE_KEYS, required=("name", "memory"))
    name = text_of(where, value, "name", "")
    match = _DEVICE_NAME.fullmatch(name)
    if match is None:
        raise ClusterError(
            f"{where} is named {name!r}; wanted a form like /device:GPU:0 or "
            "/job:worker/task:1/device:CPU:0"
        )
    where = f"device {name!r}"
    device_type = text_of(where, value, "type", match.group(3))
    if device_type != match.group(3):
        raise ClusterError(f"{where} has 'type' {device_type!r}; its name says {match.group(3)!r}")
    if device_type not in ("CPU", "GPU"):
        raise ClusterError(f"{where} is a {device_type}; only CPU and GPU can be priced")
    default = Device(name, device_type, 1)
    efficiency = number_of(where, value, "efficiency", default.efficiency)
    if efficiency > 1:
        raise ClusterError(f"{where} has 'efficiency' {efficiency}; wanted 0 < efficiency <= 1")
    is_by_class = device_type == "GPU" and "efficiency" not in value and "architecture" in value
    precision = text_of(where, value, "precision", PRECISIONS[0] if is_by_class else "")
    if precision and (precision not in PRECISIONS or device_type != "GPU"):
        raise ClusterError(
            f"{where} has 'precision' {precision!r}; wanted one of {', '.join(PRECISIONS)}, of GPUs"
        )
    bandwidth = "bandwidth_bytes_per_second"
    given: dict[str, Json] = {
        **{key: count_of(where, value, key, getattr(default, key)) for key in _COUNT_KEYS},
        **{key: text_of(where, value, key, "") for key in _TEXT_KEYS},
        **{key: number_of(where, value, key, 0.0, zero=True) for key in _MEASURED_DEVICE_KEYS},
    }
    return dataclasses.replace(
        default,
        memory_bytes=parse_bytes(f"'memory' of {where}", value["memory"]),
        efficiency=efficiency,
        precision=precision,
        bandwidth_bytes_per_second=number_of(where, value, bandwidth, getattr(default, bandwidth)),
        **given,
    )


def taught_of(cluster: JsonObject) -> Mapping[str, Interval]:
    """{number: value, low, high} of a parsed cluster file; empty where there is none.

    Raises:
      ClusterError: it is something else.
    """
    taught = cluster.get("taught", {})
    if not isinstance(taught, Mapping):
        raise ClusterError(f"'taught' is {taught!r}; {_TAUGHT_WANTED}")
    for name, values in taught.items():
        if not (is_name(name) and _is_interval(values, is_factor=not name.endswith("_seconds"))):
            raise ClusterError(f"'taught' says {name!r}: {values!r}; {_TAUGHT_WANTED}")
    return {name: (float(v), float(low), float(high)) for name, (v, low, high) in taught.items()}


def _is_interval(values: Json, is_factor: bool) -> bool:
    """A factor is never 0."""
    if not isinstance(values, list) or len(values) != 3:
        return False
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in values):
        return False
    value, low, high = values
    return 0.0 <= low <= value < high and not (is_factor and low == 0.0)

"""Reads and writes cluster files: JSON as in the contract, section 7, with no unknown key.

Every key but `name`, `devices` and the devices' `name` and `memory` has a default. Links are
directed. A pair of devices that is not listed has `default_link`, which must then be given.

`tfplace calibrate` adds what it measured, which is 0 or empty where it is not given:

- of the cluster `origin` (the `--cluster` value), `step_overhead_seconds` and `fetch_seconds`;
- of a device `op_seconds`, `step_seconds`, `compute_slowdown` and `memory_slowdown`;
- of a link the time that its transfers take of the devices at its two ends, `sender_busy_seconds`
  and `receiver_busy_seconds`, each with a `..._per_byte`.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.cluster import COMMUNICATION_RULES, Cluster, Device, TransferWork
from graphs.clusters.device_rules import require_sensible, require_together
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean, did_you_mean_file
from graphs.op_graph import FloatArray

_CLUSTER_SECONDS = ("step_overhead_seconds", "fetch_seconds")
CLUSTER_KEYS = (
    *("name", "communication", "devices", "links", "default_link", "origin"),
    *_CLUSTER_SECONDS,
)
_BUSY_FIELD = {
    "sender_busy_seconds": "sender_seconds",
    "sender_busy_seconds_per_byte": "sender_seconds_per_byte",
    "receiver_busy_seconds": "receiver_seconds",
    "receiver_busy_seconds_per_byte": "receiver_seconds_per_byte",
}
_REQUIRED_LINK_KEYS = ("bytes_per_second", "latency_seconds")
DEFAULT_LINK_KEYS = (*_REQUIRED_LINK_KEYS, *_BUSY_FIELD)
LINK_KEYS = ("from", "to", *DEFAULT_LINK_KEYS)
DEVICE_KEYS = tuple(
    "memory" if field.name == "memory_bytes" else field.name for field in dataclasses.fields(Device)
)
_MEASURED_DEVICE_KEYS = ("op_seconds", "step_seconds", "compute_slowdown", "memory_slowdown")
_ORIGIN = re.compile(r"local|tf_config|(workers|gpu_split):[1-9]\d*")
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGTP")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_DEVICE_NAME = re.compile(r"(/job:[A-Za-z0-9_]+/(replica:\d+/)?task:\d+)?/device:([A-Z]+):\d+")


def read_cluster(path: str) -> Cluster:
    """Reads a cluster file.

    Raises:
      ClusterError: the file can't be read, is no JSON, or says something that can't be.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        return cluster_from_json(json.loads(text, object_pairs_hook=_unique_keys))
    except OSError as error:
        raise ClusterError(
            f"reading cluster file {path}: it can't be read ({error.strerror}); give the path of a "
            f"file, or one of the clusters that `tfplace devices` lists{did_you_mean_file(path)}"
        ) from None
    except UnicodeDecodeError as error:
        raise ClusterError(f"reading cluster file {path}: it is no text: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ClusterError(f"reading cluster file {path}: not JSON: {error}") from error
    except ClusterError as error:
        raise ClusterError(f"reading cluster file {path}: {error}") from error


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    """The JSON value of a cluster file, with every link listed and memory in bytes.

    Measured figures that are 0 are left out.
    """
    devices = [
        {
            key: device.memory_bytes if key == "memory" else getattr(device, key)
            for key in DEVICE_KEYS
            if key not in _MEASURED_DEVICE_KEYS or getattr(device, key)
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
    head: dict[str, Any] = {"name": cluster.name, "communication": cluster.communication}
    if cluster.origin:
        head["origin"] = cluster.origin
    for key in _CLUSTER_SECONDS:
        if getattr(cluster, key):
            head[key] = getattr(cluster, key)
    return {**head, "devices": devices, "links": links}


def _busy_to_json(work: TransferWork | None, source: int, target: int) -> dict[str, float]:
    if work is None:
        return {}
    return {key: float(getattr(work, field)[source, target]) for key, field in _BUSY_FIELD.items()}


def cluster_from_json(value: Any) -> Cluster:
    """The cluster of a parsed cluster file.

    Raises:
      ClusterError: one sentence about the first thing that is wrong.
    """
    _require_keys("the cluster", value, CLUSTER_KEYS, required=("name", "devices"))
    name = _text("the cluster", value, "name", "")
    if not name:
        raise ClusterError("the cluster's 'name' is empty")
    communication = _text("the cluster", value, "communication", "duplex")
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
        require_sensible(device)
    require_together(devices)
    origin = _text("the cluster", value, "origin", "")
    if origin and _ORIGIN.fullmatch(origin) is None:
        raise ClusterError(
            f"the cluster's 'origin' is {origin!r}; wanted what was calibrated: local, workers:N, "
            "gpu_split:N or tf_config"
        )
    latency, rate, work = _links(value, device_names)
    overhead, fetch = (
        _number("the cluster", value, key, 0.0, zero=True) for key in _CLUSTER_SECONDS
    )
    return Cluster(name, communication, devices, latency, rate, origin, overhead, fetch, work)


def parse_bytes(where: str, value: Any) -> int:
    """Bytes of "12GiB", "16GB", "512 MiB" or an integer; decimals like "1.5GiB" round down.

    Raises:
      ClusterError: it is none of these, or not positive.
    """
    size: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        size = value if 1 <= value < 2**63 else None
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match.groups()
        scale = {key.lower(): factor for key, factor in _UNITS.items()}.get(unit.lower())
        size = None if scale is None else float(number) * scale
    if size is None or not 1 <= size < 2**63:
        raise ClusterError(
            f"{where} is {value!r}; wanted a positive size such as 17179869184, '16GiB' or '16GB'"
        )
    return int(size)


def _device(position: int, value: Any) -> Device:
    """The device of one entry of "devices"."""
    where = f"device {position}"
    _require_keys(where, value, DEVICE_KEYS, required=("name", "memory"))
    name = _text(where, value, "name", "")
    match = _DEVICE_NAME.fullmatch(name)
    if match is None:
        raise ClusterError(
            f"{where} is named {name!r}; wanted a form like /device:GPU:0 or "
            "/job:worker/task:1/device:CPU:0"
        )
    where = f"device {name!r}"
    device_type = _text(where, value, "type", match.group(3))
    if device_type != match.group(3):
        raise ClusterError(f"{where} has 'type' {device_type!r}; its name says {match.group(3)!r}")
    if device_type not in ("CPU", "GPU"):
        raise ClusterError(f"{where} is a {device_type}; only CPU and GPU can be priced")
    default = Device(name, device_type, 1)
    efficiency = _number(where, value, "efficiency", default.efficiency)
    if efficiency > 1:
        raise ClusterError(f"{where} has 'efficiency' {efficiency}; wanted 0 < efficiency <= 1")
    return Device(
        name=name,
        type=device_type,
        memory_bytes=parse_bytes(f"'memory' of {where}", value["memory"]),
        slots=_count(where, value, "slots", default.slots),
        efficiency=efficiency,
        architecture=_text(where, value, "architecture", ""),
        cores=_count(where, value, "cores", default.cores),
        frequency_mhz=_count(where, value, "frequency_mhz", default.frequency_mhz),
        bandwidth_bytes_per_second=_number(
            where, value, "bandwidth_bytes_per_second", default.bandwidth_bytes_per_second
        ),
        address=_text(where, value, "address", ""),
        source=_text(where, value, "source", ""),
        **{key: _number(where, value, key, 0.0, zero=True) for key in _MEASURED_DEVICE_KEYS},
    )


def _links(
    value: Mapping[str, Any], names: Sequence[str]
) -> tuple[FloatArray, FloatArray, TransferWork | None]:
    """f8[D, D] latency, diagonal 0; f8[D, D] bytes per second, diagonal inf; transfers' work."""
    figures = np.full((len(DEFAULT_LINK_KEYS), len(names), len(names)), np.nan)
    entries = value.get("links", [])
    if not isinstance(entries, list):
        raise ClusterError("'links' has to be a list")
    for position, entry in enumerate(entries):
        where = f"link {position}"
        _require_keys(where, entry, LINK_KEYS, required=("from", "to", *_REQUIRED_LINK_KEYS))
        ends = [_text(where, entry, key, "") for key in ("from", "to")]
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
        figures[:, source, target] = _link_figures(where, entry)
    same = np.arange(len(names))
    figures[:, same, same] = np.where(np.arange(len(figures)) == 0, np.inf, 0.0)[:, None]
    missing = np.isnan(figures[0])
    if "default_link" in value:
        where = "'default_link'"
        _require_keys(where, value["default_link"], DEFAULT_LINK_KEYS, _REQUIRED_LINK_KEYS)
        figures[:, missing] = np.array(_link_figures(where, value["default_link"]))[:, None]
    elif missing.any():
        source, target = np.argwhere(missing)[0]
        raise ClusterError(
            f"no link leads from {names[source]!r} to {names[target]!r}; list it under 'links' "
            "or give a 'default_link'"
        )
    rate, latency, *busy = figures
    return latency, rate, TransferWork(*busy) if np.any(busy) else None


def _link_figures(where: str, entry: Mapping[str, Any]) -> list[float]:
    """The figures of a link, in the order of DEFAULT_LINK_KEYS."""
    rate, *others = DEFAULT_LINK_KEYS
    return [
        _number(where, entry, rate, 0.0),
        *(_number(where, entry, key, 0.0, zero=True) for key in others),
    ]


def _require_keys(
    where: str, value: Any, known: Collection[str], required: Collection[str]
) -> None:
    if not isinstance(value, dict):
        raise ClusterError(f"{where} is {_shown(value)}; wanted a JSON object")
    for key in value:
        if key not in known:
            guess = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            raise ClusterError(f"{where} has an unknown key {key!r}{guess}")
    for key in required:
        if key not in value:
            raise ClusterError(f"{where} has no {key!r}, which is required")


def _text(where: str, value: Mapping[str, Any], key: str, default: str) -> str:
    text = value.get(key, default)
    if not isinstance(text, str):
        raise ClusterError(f"{where} has {key!r} {_shown(text)}; wanted a string")
    return text


def _number(
    where: str, value: Mapping[str, Any], key: str, default: float, zero: bool = False
) -> float:
    given = value.get(key, default)
    wanted = "a number of at least 0" if zero else "a number above 0"
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ClusterError(f"{where} has {key!r} {_shown(given)}; wanted {wanted}")
    try:
        number = float(given)
    except OverflowError:
        raise ClusterError(f"{where} has a {key!r} that is too large; wanted {wanted}") from None
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ClusterError(f"{where} has {key!r} {given}; wanted {wanted}")
    return number


def _count(where: str, value: Mapping[str, Any], key: str, default: int) -> int:
    number = _number(where, value, key, default)
    if number != int(number) or number >= 2**31:
        raise ClusterError(f"{where} has {key!r} {number:g}; wanted a whole number above 0")
    return int(number)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    for key, times in collections.Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ClusterError(f"key {key!r} stands twice in one object")
    return dict(pairs)

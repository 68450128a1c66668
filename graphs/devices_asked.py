"""Finds where TensorFlow would put each op of the model as it came: the given placement."""

import functools
from collections.abc import Sequence

import numpy as np

from graphs.building.build import BuiltGraph
from graphs.cluster import Cluster
from graphs.errors import ConstraintError
from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import bodies
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import IntArray
from graphs.pricing.costs import Costs
from graphs.protos import GraphDef


def given_placement(
    flat: FlatGraph, built: BuiltGraph, cluster: Cluster, allowed: np.ndarray
) -> IntArray:
    """i4[N]: device strings where the model has them, TensorFlow's default elsewhere.

    By default TensorFlow puts an op on the first GPU if the op has a kernel there, else on the
    first CPU. Ops that must lie together follow the one that has a device string. A string that
    means a device which the cluster lacks, or which has no kernel, counts as none (soft placement).

    Args:
      cluster: D devices.
      allowed: bool[N, D].
    """
    count = built.graph.num_ops
    is_gpu = np.array([device.type == "GPU" for device in cluster.devices])
    order = np.argsort(~is_gpu, kind="stable")
    default = order[np.argmax(allowed[:, order], axis=1)]
    asked = np.full(count, -1, dtype=np.int32)
    nodes = flat.graph_def.node
    matching = functools.cache(lambda asked: match_device(asked, cluster.device_names))
    for op, node in zip(built.op_of_node.tolist(), nodes, strict=True):
        if node.device and matching(node.device) >= 0:
            asked[op] = matching(node.device)
    group = built.graph.colocation_group
    asked_of_group = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int32)
    for op in np.flatnonzero((group >= 0) & (asked >= 0))[::-1]:
        asked_of_group[group[op]] = asked[op]
    member = group >= 0
    follows = np.where(member, asked_of_group[group] if len(asked_of_group) else -1, -1)
    asked = np.where(follows >= 0, follows, asked).astype(np.int32)
    said = (asked >= 0) & allowed[np.arange(count), np.maximum(asked, 0)]
    return np.where(said, asked, default).astype(np.int32)


def kept_devices(flat: FlatGraph, built: BuiltGraph, costs: Costs, cluster: Cluster) -> IntArray:
    """i4[N]: the device that each op's string means; -1 for no string, or none of the cluster's.

    Of several devices that a string may mean ("/job:worker/task:1"), the first with a kernel is
    taken, GPUs before CPUs, as TensorFlow does.

    Raises:
      ConstraintError: the ops of one unit ask for different devices.
    """
    kept = np.full(built.graph.num_ops, -1, dtype=np.int32)
    order = sorted(range(cluster.num_devices), key=lambda d: cluster.devices[d].type != "GPU")
    said: dict[int, str] = {}
    for op, node in zip(built.op_of_node.tolist(), flat.graph_def.node, strict=True):
        matches = matching_devices(node.device, cluster.device_names) if node.device else []
        if not matches:
            continue
        able = [d for d in order if d in matches and np.isfinite(costs.op_seconds[op, d])]
        device = able[0] if able else matches[0]
        if kept[op] not in (-1, device):
            raise ConstraintError(
                f"keeping devices: {built.graph.op_names[op]!r} is placed as a whole, but its ops "
                f"ask for {said[op]!r} and {node.device!r}; leave out --keep_devices"
            )
        kept[op], said[op] = device, node.device
    return kept


def kept_beside_the_run(
    graph_def: GraphDef, flat: FlatGraph, device_names: Sequence[str]
) -> dict[Origin, str]:
    """{op: device} of the ops with a device string that the run does not need or a unit holds.

    Args:
      graph_def: the run graph that `flat` was made from.
      flat: its ops are left out.
      device_names: [D]; a string that means none of them is left out.
    """
    placed = {(origin.function, origin.node) for origin in flat.origins}
    kept = {}
    for function, nodes in bodies(graph_def):
        for node in nodes:
            if node.device and (function, node.name) not in placed:
                device = match_device(node.device, device_names)
                if device >= 0:
                    kept[Origin(function, node.name)] = device_names[device]
    return kept


def match_device(device: str, device_names: Sequence[str]) -> int:
    """The first device that a device string, perhaps a partial one, may mean; -1 for none.

    "/gpu:1", "/device:GPU:1", "GPU:1" and "/job:localhost/replica:0/task:0/device:GPU:1" are
    the same device of this host.
    """
    return next(iter(matching_devices(device, device_names)), -1)


def matching_devices(device: str, device_names: Sequence[str]) -> list[int]:
    """All devices that a device string may mean."""
    wanted = _parts(device)
    return [
        index
        for index, name in enumerate(device_names)
        if all(_parts(name).get(key, _DEFAULTS.get(key)) == wanted[key] for key in wanted)
    ]


def named_device(device: str, device_names: Sequence[str]) -> int:
    """The one device that a user means by "/gpu:1", "GPU:1", "/device:GPU:1" or its full name.

    Raises:
      LookupError: it names none, or several; the message says so.
    """
    if device in device_names:
        return list(device_names).index(device)
    matches = matching_devices(device, device_names) if "type" in _parts(device) else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(device_names[index] for index in matches)
        raise LookupError(f"{device!r} may be {several}; name one of them in full")
    raise LookupError(
        f"the cluster has no device {device!r}; it has {', '.join(device_names)}"
        f"{did_you_mean(device, device_names)}"
    )


_DEFAULTS = {"job": "localhost", "replica": "0", "task": "0", "id": "0"}


def _parts(device: str) -> dict[str, str]:
    """{part: value} of a device string; the parts are job, replica, task, type and id."""
    parts: dict[str, str] = {}
    for word in device.strip("/").split("/"):
        key, *values = word.split(":")
        if key.lower() == "device" and values:
            parts["type"] = values[0].upper()
            values = values[1:]
            if values and values[0] != "*":
                parts["id"] = values[0]
        elif key.lower() in ("job", "replica", "task") and values:
            parts[key.lower()] = values[0]
        elif key:
            parts["type"] = key.upper()
            if values and values[0] != "*":
                parts["id"] = values[0]
    return parts

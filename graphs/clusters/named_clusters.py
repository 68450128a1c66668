"""The clusters that have names; named_clusters.json has every figure with its source.

A cluster `k80x4` is one host: `/device:CPU:0` and `/device:GPU:0` to `/device:GPU:3`. Memory is
the nominal size; `--memory_reserve` covers what ECC and the CUDA context take. Links are as fast as
TensorFlow's transfers were measured, not as the bus; latency is what one transfer costs beside its
bytes (estimates; `tfplace calibrate` measures). `nvlinks` has, by the number of GPUs, the NVLinks
of each pair in an uneven mesh: pairs without one go over PCIe. GPUs are priced by the class of each
kernel. `efficiency` is a CPU's share of its fused multiply-add peak that training reaches.
"""

import functools

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean
from graphs.host.text_table import json_beside
from graphs.protos import JsonObject

PCIE_LATENCY_SECONDS = 30e-6


@functools.cache
def _figures() -> JsonObject:
    return json_beside(__file__)


def names() -> tuple[str, ...]:
    """All named clusters: "k80x2", "k80x4", ..."""
    hosts = _figures()["hosts"].items()
    return tuple(f"{model}x{count}" for model, host in hosts for count in host["counts"])


def named(name: str) -> Cluster:
    """The named cluster; ClusterError: there is none of that name."""
    if name not in names():
        raise ClusterError(
            f"looking up cluster {name!r}: there is none{did_you_mean(name, names())} "
            f"Named clusters: {', '.join(names())}"
        )
    model, _, number = name.partition("x")
    host, count = _figures()["hosts"][model], int(number)
    links = host["links"]
    gpus = [_device(f"/device:GPU:{i}", "GPU", host["gpu"]) for i in range(count)]
    rate = np.full((count + 1, count + 1), 1e9 * links["host_gb_per_second"])
    latency = np.full((count + 1, count + 1), PCIE_LATENCY_SECONDS)
    mesh = links.get("nvlinks", {}).get(number)
    nvlinks = np.array([[int(n) for n in row] for row in mesh or ["1" * count] * count])
    peers = nvlinks * 1e9 * links["peer_gb_per_second"]
    rate[1:, 1:] = np.where(nvlinks > 0, peers, rate[1:, 1:])
    latency[1:, 1:] = np.where(nvlinks > 0, links["peer_latency_us"] / 1e6, PCIE_LATENCY_SECONDS)
    np.fill_diagonal(rate, np.inf)
    np.fill_diagonal(latency, 0.0)
    cpu = _device("/device:CPU:0", "CPU", _figures()["cpus"][host["cpu"]])
    return Cluster(name, "duplex", (cpu, *gpus), latency, rate)


def _device(name: str, kind: str, figures: JsonObject) -> Device:
    return Device(
        name,
        kind,
        figures["memory_gib"] << 30,
        bandwidth_bytes_per_second=1e9 * figures["gb_per_second"],
        **{key: figures[key] for key in ("architecture", "cores", "frequency_mhz")},
        efficiency=figures.get("efficiency", 1.0),
        source=figures["source"],
        precision="tf32" if kind == "GPU" else "",
    )

"""Measures how much slower ops get while other devices that share their memory work, too."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster
from graphs.executor_model import shares_memory
from graphs.op_graph import FloatArray
from tfplace.measurement.calibration.probe_graphs import STREAM_BYTES, products_on, streams_on
from tfplace.measurement.calibration.probing import Prober

# Ops in a chain; the difference of a long and a short one is free of the step's dispatch.
_SHORT, _PRODUCTS, _STREAMS = 1, 40, 33

# Rows of the matrices: they fit into a core's cache.
_PRODUCT_SIDE = 384

# So many copies of each probe, with memory of its own. Where the pages lie can double the time of a
# copy's streams for good, so the fastest copy counts.
COPIES = 3


@dataclasses.dataclass(frozen=True)
class Contention:
    """By what share ops of devices that share memory take longer when all of these are busy.

    Attributes:
      compute_slowdown: of products of matrices that fit into a core's cache.
      memory_slowdown: of element-wise ops on STREAM_BYTES.
    """

    compute_slowdown: float = 0.0
    memory_slowdown: float = 0.0


def hosts(cluster: Cluster) -> list[tuple[str, ...]]:
    """Names of devices that share memory, of each host that has several."""
    shared = shares_memory(cluster)
    names = np.array(cluster.device_names)
    groups = {
        tuple(names[row | (np.arange(len(row)) == device)].tolist())
        for device, row in enumerate(shared)
        if row.any()
    }
    return sorted(groups)


def measure_contention(
    names: Sequence[str], prober: Prober, budget_seconds: float, num_copies: int = COPIES
) -> Contention:
    """Times equal chains on every device alone, and on all of them at once."""
    everybody = tuple(names)
    together = [*((name,) for name in names), everybody]
    probes = {}
    for devices, copy in itertools.product(together, range(num_copies)):
        for length in (_SHORT, _PRODUCTS):
            probes["compute", devices, length, copy] = products_on(devices, _PRODUCT_SIDE, length)
        for length in (_SHORT, _STREAMS):
            probes["memory", devices, length, copy] = streams_on(devices, STREAM_BYTES, length)
    seconds = prober.time(probes, budget_seconds)

    def fastest(kind: str, devices: tuple[str, ...], length: int) -> FloatArray:
        copies = [
            seconds[kind, devices, length, copy] - seconds[kind, devices, _SHORT, copy]
            for copy in range(num_copies)
        ]
        return min(copies, key=lambda rounds: float(np.median(rounds)))

    shares = [
        slowdown({devices: fastest(kind, devices, length) for devices in together}, everybody)
        for kind, length in (("compute", _PRODUCTS), ("memory", _STREAMS))
    ]
    return Contention(*shares)


def slowdown(seconds: Mapping[tuple[str, ...], FloatArray], everybody: tuple[str, ...]) -> float:
    """Share by which all at once take longer than the slowest alone, at least 0.

    Args:
      seconds: {devices that work: f8[rounds]}; round i of one ran beside round i of the others.
      everybody: the key of all at once.
    """
    alone = np.max([value for key, value in seconds.items() if key != everybody], axis=0)
    return max(float(np.median(seconds[everybody] / np.maximum(alone, 1e-9))) - 1.0, 0.0)

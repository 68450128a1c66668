"""Measures what ops and steps cost on a device beside their work, and what ops at once do."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.executor_model import shares_memory
from graphs.op_graph import FloatArray
from tfplace.measurement.calibration.probe_graphs import (
    STREAM_BYTES,
    op_chains,
    products_on,
    step_probe,
    streams_on,
)
from tfplace.measurement.calibration.probing import Prober, median_difference

# Tiny ops: the length of a chain, and how many run at once.
_CHAIN_LENGTH, _NUM_CHAINS = 200, 16

# Heavy ops: rows of matrices whose product takes about a millisecond, far above its dispatch; the
# products in a chain; and how many chains run at once at most. Matrix products use several cores
# by themselves, and traced ops ran alone: other ops would count cores twice.
_PRODUCT_SIDE = {"CPU": 384, "GPU": 2048}
_PRODUCT_DEPTH = 3
_MOST_AT_ONCE = 16

# Streams: ops in a chain, and the vectors that each moves: two are read, one is written.
_STREAM_LENGTH = 9
_STREAM_VECTORS = 3


@dataclasses.dataclass(frozen=True)
class StepFigures:
    """What a step costs beside its ops."""

    overhead_seconds: float  # of every step, whichever devices take part
    fetch_seconds: float  # of each fetched tensor
    device_seconds: Sequence[float]  # [D] what each device adds that takes part
    spread: float  # (p75 - p25) / median of equal steps, the largest of all probes: noise


@dataclasses.dataclass(frozen=True)
class OpFigures:
    """What ops cost on a device.

    Attributes:
      op_seconds: of a tiny op, its dispatch included.
      slots: ops that run at once.
      product_seconds: of one product of matrices of `product_side`.
      product_side: number of rows.
      seconds_of_count: {k: seconds of k equal chains of products at once}.
      stream_bytes_per_second: of an element-wise op on vectors of STREAM_BYTES that runs alone; 0
        where that was not measured.
    """

    op_seconds: float
    slots: int
    product_seconds: float
    product_side: int
    seconds_of_count: Mapping[int, float]
    stream_bytes_per_second: float = 0.0


def measure_steps(cluster: Cluster, prober: Prober, budget_seconds: float) -> StepFigures:
    """Times steps in which one device takes part, or all of them, and fetches from each."""
    names = cluster.device_names
    together = tuple(names)
    probes = {(devices, 0): step_probe(devices) for devices in {*((n,) for n in names), together}}
    probes |= {((name,), 1): step_probe((name,), num_fetches=1) for name in names}
    seconds = prober.time(probes, budget_seconds)
    alone = [float(np.median(seconds[(name,), 0])) for name in names]
    fetches = [median_difference(seconds[(name,), 1], seconds[(name,), 0]) for name in names]
    overhead, shares = split_overhead(alone, float(np.median(seconds[together, 0])))
    spread = max(_spread(of_step) for of_step in seconds.values())
    return StepFigures(overhead, max(float(np.mean(fetches)), 0.0), shares, spread)


def split_overhead(alone: Sequence[float], together: float) -> tuple[float, tuple[float, ...]]:
    """Solves alone[d] = o + s[d], together = o + sum(s) for the overhead o and shares s, all >= 0.

    Args:
      alone: [D] seconds of a step of each device.
      together: seconds of a step of all devices.
    """
    if len(alone) == 1:
        return alone[0], (0.0,)
    overhead = (sum(alone) - together) / (len(alone) - 1)
    overhead = min(max(overhead, 0.0), *alone)
    return overhead, tuple(seconds - overhead for seconds in alone)


def measure_ops(device: Device, prober: Prober, budget_seconds: float) -> OpFigures:
    """Times chains of tiny ops, 1, 2, … equal heavy ops at once, and on a CPU large streams."""
    side = _PRODUCT_SIDE[device.type]
    counts = slot_counts(device)
    probes = {("chain", 1): op_chains(device.name, 1, _NUM_CHAINS)}
    probes["chain", _CHAIN_LENGTH] = op_chains(device.name, _CHAIN_LENGTH, _NUM_CHAINS)
    probes["idle", 0] = step_probe([device.name])
    probes |= {
        ("products", count): products_on([device.name] * count, side, _PRODUCT_DEPTH)
        for count in counts
    }
    lengths = (1, _STREAM_LENGTH) if device.type == "CPU" else ()
    probes |= {("stream", n): streams_on([device.name], STREAM_BYTES, n) for n in lengths}
    seconds = prober.time(probes, budget_seconds)
    num_ops = (_CHAIN_LENGTH - 1) * _NUM_CHAINS
    of_op = median_difference(seconds["chain", _CHAIN_LENGTH], seconds["chain", 1]) / num_ops
    of_count = {
        count: max(median_difference(seconds["products", count], seconds["idle", 0]), 1e-9)
        for count in counts
    }
    return OpFigures(
        op_seconds=max(of_op, 0.0),
        slots=choose_slots(of_count),
        product_seconds=of_count[1] / _PRODUCT_DEPTH,
        product_side=side,
        seconds_of_count=of_count,
        stream_bytes_per_second=_stream_rate(*(seconds["stream", n] for n in lengths)),
    )


def slot_counts(device: Device) -> list[int]:
    """Numbers of equal ops to run at once: 1 to twice a CPU's cores, thinned out above 4."""
    most = min(2 * device.cores, _MOST_AT_ONCE) if device.type == "CPU" else 4
    return sorted({count for count in (1, 2, 3, 4, 6, 8, 12, 16) if count <= most})


def _stream_rate(short: FloatArray | None = None, long: FloatArray | None = None) -> float:
    """Bytes per second, from the steps of a chain of one and of _STREAM_LENGTH; 0 without."""
    if short is None or long is None:
        return 0.0
    moved = (_STREAM_LENGTH - 1) * _STREAM_VECTORS * STREAM_BYTES
    return moved / max(median_difference(long, short), 1e-9)


def _spread(seconds: FloatArray) -> float:
    p25, median, p75 = np.percentile(seconds, [25, 50, 75])
    return float((p75 - p25) / median)


def choose_slots(seconds_of_count: Mapping[int, float]) -> int:
    """The number of slots s for which ceil(k / s) rounds explain best what k equal ops take.

    Ops that use several cores themselves gain nothing side by side: then it is 1, whatever the
    number of cores.

    Args:
      seconds_of_count: {k: seconds of k independent equal ops}; 1 is among the k.

    Returns:
      The s of 1 to the largest k with the least sum of |log(predicted / measured)|; the smallest
      such s.
    """
    alone = seconds_of_count[1]

    def error(slots: int) -> float:
        return sum(
            abs(math.log(alone * math.ceil(count / slots) / seconds))
            for count, seconds in seconds_of_count.items()
        )

    return min(range(1, max(seconds_of_count) + 1), key=lambda slots: (error(slots), slots))


# Measures how much slower ops get while other devices that share their memory work, too.


# Ops in a chain; the difference of a long and a short one is free of the step's dispatch.
_SHORT, _PRODUCTS, _STREAMS = 1, 40, 33

# Rows of the matrices: they fit into a core's cache.
_PRODUCT_ROWS = 384

# So many copies of each probe, with memory of its own. Where the pages lie can double the time of a
# copy's streams for good, so the fastest copy counts.
COPIES = 3


@dataclasses.dataclass(frozen=True)
class Contention:
    """By what share ops of devices that share memory take longer when all of these are busy."""

    compute_slowdown: float = 0.0  # of products of matrices that fit into a core's cache
    memory_slowdown: float = 0.0  # of element-wise ops on STREAM_BYTES


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
            probes["compute", devices, length, copy] = products_on(devices, _PRODUCT_ROWS, length)
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

"""Prices every op on every device of a cluster, in seconds, from Grappler's flops and bytes.

  seconds[i, d] = (flops[i] / peak[d] + bytes[i] / bandwidth[d]) / efficiency[d]

This is Grappler's ideal time over the share of it that real training reaches. GPUs with a
`precision` are priced by the class of each kernel instead (kernel_classes). Three rules are our
own: an op that launches a kernel on a GPU takes at least `GPU_LAUNCH_SECONDS`; an op that only
hands a buffer on, or that TensorFlow folds into a constant, takes none; an op without a kernel on a
device type takes forever there.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphs import op_types
from graphs.building.shapes import TensorProperties
from graphs.cluster import Cluster, Device
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of
from graphs.op_graph import FloatArray, IntArray
from graphs.pricing.grappler_costs import OpWork, with_defaults
from graphs.pricing.kernel_classes import gpu_seconds, no_kernels, rates_of
from graphs.pricing.node_work import NodeWork, node_work

GPU_LAUNCH_SECONDS = 5e-6
"""Least time of a kernel on a GPU: launching one takes the driver 2 to 5 us, and TensorFlow's
executor adds its part. NVIDIA measured 3.8 us per short kernel launched back to back on a V100
("Getting Started with CUDA Graphs", 2019). On a CPU, calling a kernel took 0.3 us where we
measured it (`tfplace/docs/decisions/008-prices-without-a-run.md`), too little to matter, so CPUs
have no such floor."""

# fp32 lanes per multiprocessor by compute capability (CUDA C programming guide, table of
# arithmetic instructions). Grappler knows these up to Volta and takes 64 for all later ones.
_LANES = (("2.", 32), ("3.", 192), ("5.", 128), ("6.0", 64), ("6.", 128), ("7.", 64), ("8.0", 64))
_LATER_LANES = 128

CACHE_BYTES = 1 << 20
"""Tensors below this size fit into a core's own cache (0.5 to 2 MiB on servers of 2017 to 2024), so
they don't go through the memory that cores share."""

# fp32 flops per core and cycle: two fused multiply-add units of this width. Grappler counts 1,
# which makes a CPU as slow as if it had no vector instructions.
_CPU_FLOPS_PER_CYCLE = {"avx512": 64, "avx2": 32, "avx": 16, "sse": 8, "neon": 16, "scalar": 2}
_DEFAULT_CPU_ARCHITECTURE = "avx2"

# Grappler prices these op types as if they only moved their tensors, but they compute much.
_MOVES_ONLY = op_types.listed("moves_only")


class Provenance(enum.IntEnum):
    """How an op's seconds on a device are known, the least known first.

    Attributes:
      ANALYTIC: by Grappler's flops and bytes.
      SCALED: by these, times a factor that ops which were traced on such a device show.
      ABSENT: TensorFlow folded the op, fused it into another or dropped it, so that it takes no
        time, or a share of that other op's.
      TRACED: it ran and was timed.
    """

    ANALYTIC = 0
    SCALED = 1
    ABSENT = 2
    TRACED = 3


@dataclasses.dataclass(frozen=True)
class Costs:
    """What ops cost, and how that is known.

    Attributes:
      op_seconds: f8[N, D]; inf where the op has no kernel.
      source: "analytic", "measured" or "mixed".
      covered: bool[N]; False where the seconds are a default and not a price.
      notes: sentences for the report about what was assumed.
      flops: floating point operations of one run, as far as Grappler priced it.
      provenance: i1[N, D] Provenance of each figure; None where all are analytic.
      wall_time_coverage: share [0, 1] of a measured step that traced ops of the model account
        for, on the kind of device where it is least; None where nothing was traced.
      memory_share: f8[N] share [0, 1] of an op's ideal time on the first device that it waits for
        memory. Only its nodes that touch more than CACHE_BYTES do. None where it is not known.
      trip_counts: {loop: iterations in one run} where constants fix them.
      op_turn: i4[N] the op's place in the order in which TensorFlow lists what it runs, where a
        traced run told it; else None.
    """

    op_seconds: FloatArray
    source: str
    covered: np.ndarray
    notes: Sequence[str] = ()
    flops: float = 0.0
    provenance: npt.NDArray[np.int8] | None = None
    wall_time_coverage: float | None = None
    memory_share: FloatArray | None = None
    trip_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    op_turn: IntArray | None = None

    def num_ops_by_provenance(self) -> dict[Provenance, int]:
        """{provenance: number of ops}; an op counts by its least known figure of all devices."""
        if self.provenance is None:
            return dict.fromkeys(Provenance, 0) | {Provenance.ANALYTIC: len(self.covered)}
        here = np.where(np.isfinite(self.op_seconds), self.provenance, max(Provenance))
        least = here.min(axis=1, initial=max(Provenance))
        return {known: int((least == known).sum()) for known in Provenance}

    def units(self, flat: FlatGraph) -> dict[str, str]:
        """{unit: why it is one, and how often it runs, if that is known}."""
        return {
            name: f"{why}, {self.trip_counts[name]:,} iterations"
            if name in self.trip_counts
            else why
            for name, why in flat.unit_reason.items()
        }


def price(
    flat: FlatGraph,
    properties: TensorProperties,
    op_of_node: IntArray,
    cluster: Cluster,
    asked: NodeWork | None = None,
) -> Costs:
    """Prices every op on every device of a cluster, whether the devices are present or not.

    An op that is a unit of several nodes costs what its nodes cost. What Grappler can't price
    counts as moving its inputs and outputs once, and as not covered.

    Args:
      op_of_node: i4[nodes] the op that each node is in.
      asked: what `node_work` says of the graph, where that is known already.

    Returns:
      Costs of N = max(op_of_node) + 1 ops on the cluster's D devices; source "analytic".
    """
    asked = asked or node_work(flat, properties)
    covered_nodes = _covered(flat, properties, asked)
    asked = dataclasses.replace(asked, work=with_defaults(flat, properties, asked.work))
    num_ops = int(op_of_node.max()) + 1 if len(op_of_node) else 0
    op_seconds = np.zeros((num_ops, cluster.num_devices))
    of_kind: dict[Device, FloatArray] = {}
    for d, device in enumerate(cluster.devices):
        # Without what can't change its prices, so that each kind is priced once.
        kind = dataclasses.replace(
            device, name="", memory_bytes=0, address="", source="", network=""
        )
        if kind not in of_kind:
            seconds = node_seconds(flat, asked, device)
            of_kind[kind] = np.bincount(op_of_node, seconds, num_ops).astype(np.float64)
        op_seconds[:, d] = of_kind[kind]
    covered = np.ones(num_ops, dtype=bool)
    np.logical_and.at(covered, op_of_node, covered_nodes)
    times = 1.0 if asked.times is None else asked.times
    flops = np.nansum(asked.work.flops * times) + (asked.inner.flops * asked.inner.times).sum()
    return Costs(
        op_seconds,
        "analytic",
        covered,
        _notes(flat, asked, covered, cluster),
        float(flops),
        memory_share=_memory_share(asked.work, op_of_node, num_ops, cluster.devices[0]),
        trip_counts=asked.trip_counts,
    )


def _memory_share(work: OpWork, op_of_node: IntArray, num_ops: int, device: Device) -> FloatArray:
    """f8[N]: the share of its seconds that an op waits for memory; 0 for ops without any."""
    moving = work.memory_bytes / (device.bandwidth_bytes_per_second / device.slots)
    waiting = np.where(work.memory_bytes > CACHE_BYTES, moving, 0.0)
    whole = np.bincount(op_of_node, work.flops / flops_per_second(device) + moving, num_ops)
    return np.bincount(op_of_node, waiting, num_ops) / np.maximum(whole, 1e-30)


def node_seconds(flat: FlatGraph, asked: NodeWork, device: Device) -> FloatArray:
    """f8[nodes]: the seconds of each node on a device, by the formula of this module."""
    work = asked.work
    launches = asked.launches["GPU"]
    seconds = kernel_seconds(work.flops, work.memory_bytes, launches, device, asked.kernels)
    seconds[asked.is_idle] = 0.0
    if asked.times is not None:
        seconds *= asked.times
    inner = asked.inner
    if inner.num_rows:
        each = kernel_seconds(
            inner.flops, inner.memory_bytes, inner.launches, device, inner.kernels
        )
        seconds += np.bincount(inner.node, each * inner.times, len(seconds))
    seconds[~asked.has_kernel[device.type]] = np.inf
    return seconds


def kernel_seconds(
    flops: FloatArray,
    memory_bytes: FloatArray,
    launches: np.ndarray,
    device: Device,
    kernels: npt.NDArray[np.void] | None = None,
) -> FloatArray:
    """f8[K]: the seconds of K kernels that compute and move so much, each run once.

    Args:
      flops, memory_bytes: f8[K].
      launches: bool[K] whether it launches a kernel on a GPU.
      kernels: KERNEL[K]; None of what has a class: that only moves its bytes.
    """
    peak = flops_per_second(device)
    moving = memory_bytes / (device.bandwidth_bytes_per_second / device.slots)
    floor = device.op_seconds or GPU_LAUNCH_SECONDS
    seconds: FloatArray = flops / peak + moving
    if device.precision:
        rates = rates_of(device.architecture, device.precision)
        kernels = no_kernels(len(flops)) if kernels is None else kernels
        seconds = gpu_seconds(flops, moving, kernels, rates, peak, device.cores)
        floor = device.op_seconds or rates.op_seconds
    seconds /= device.efficiency
    if device.type == "GPU":  # it launches the next kernel while it works on this one
        seconds[launches & (seconds < floor)] = floor
    else:
        seconds += device.op_seconds
    return seconds


def flops_per_second(device: Device) -> float:
    """Peak fp32 rate of one of the device's slots; slots share the device's cores evenly.

    It is Grappler's figure but for two points: multiprocessors of GPUs later than Volta count with
    the lanes that they have, and CPUs with their vector instructions.
    """
    cycles = device.cores * device.frequency_mhz * 1e6 / device.slots
    if device.type == "GPU":
        lanes = next(
            (n for prefix, n in _LANES if device.architecture.startswith(prefix)), _LATER_LANES
        )
        return cycles * lanes * 2
    known = _CPU_FLOPS_PER_CYCLE
    return cycles * known.get(device.architecture, known[_DEFAULT_CPU_ARCHITECTURE])


def _covered(flat: FlatGraph, properties: TensorProperties, asked: NodeWork) -> np.ndarray:
    """bool[nodes]: whether Grappler priced the node, with all shapes known, and not as a mere move.

    A unit of one node is covered where all that is inside it is.
    """
    inside = asked.inner
    inner_priced = np.zeros(len(flat.graph_def.node), bool)
    inner_priced[inside.node] = True
    np.logical_and.at(inner_priced, inside.node, inside.is_priced)
    work = asked.work
    unknown = {op_of(tensor) for tensor in properties.unknown}
    covered = ~np.isnan(work.flops)
    for i, node in enumerate(flat.graph_def.node):
        if node.op in op_types.NO_LAUNCH and node.name not in flat.unit_of_node:
            covered[i] = True
        elif (
            node.op in _MOVES_ONLY
            or node.name in flat.unit_of_node
            or node.name in unknown
            or (unknown and any(op_of(source) in unknown for source in data_inputs(node)))
        ):
            unit = flat.unit_of_node.get(node.name)
            # Only in a v1 loop a node is not its unit itself.
            is_counted = unit in asked.trip_counts and unit != node.name
            covered[i] = inner_priced[i] or (is_counted and covered[i])
    return covered


def _notes(
    flat: FlatGraph, asked: NodeWork, covered: np.ndarray, cluster: Cluster
) -> tuple[str, ...]:
    notes = list(asked.work.notes)
    missing = int((~covered).sum())
    if missing:
        notes.append(
            f"{missing} of {len(covered)} ops have no price (sizes that a run decides, loops, "
            "conditionals, op types): they count as little more than moving inputs and outputs once"
        )
    loops = [name for name, why in flat.unit_reason.items() if "loop" in why]
    unknown = [name for name in loops if name not in asked.trip_counts]
    if unknown:
        notes.append(
            f"the trip counts of {len(unknown)} loops are not known: what is in them counts once"
        )
    if any(device.type == "GPU" for device in cluster.devices):
        notes.append(f"what runs on GPUs is from {asked.kernel_source}")
    return tuple(notes)

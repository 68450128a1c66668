"""The clusters that have names, every figure with its source.

A cluster `k80x4` is one host: `/device:CPU:0` and `/device:GPU:0` to `/device:GPU:3`. Memory is
the nominal size; `--memory_reserve` covers what ECC and the CUDA context take.

Link bandwidth is what copies reach, not the bus's nominal rate. Link latency is what one
transfer costs TensorFlow over and above its bytes: send, receive, and the event that orders the
streams. 30 us on PCIe and 20 us on NVLink are estimates; `tfplace calibrate` measures instead.

`efficiency` is (Grappler's ideal time) / (published time of one GPU), see each model's source.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean

GIB = 1 << 30
PCIE_LATENCY_SECONDS = 30e-6
NVLINK_LATENCY_SECONDS = 20e-6


@dataclasses.dataclass(frozen=True)
class _Box:
    """A kind of host.

    Attributes:
      counts: the numbers of GPUs that it comes with.
      gpu: each of its GPUs; the name is a template.
      cpu: its CPU.
      host_bytes_per_second: between the CPU and any GPU.
      peer_bytes_per_second: between two GPUs.
      peer_latency_seconds: between two GPUs.
      nvlinks: {number of GPUs: NVLinks of each pair}, for uneven meshes. peer_bytes_per_second is
        then that of one NVLink, and pairs without one go over PCIe.
    """

    counts: Sequence[int]
    gpu: Device
    cpu: Device
    host_bytes_per_second: float
    peer_bytes_per_second: float
    peer_latency_seconds: float = PCIE_LATENCY_SECONDS
    nvlinks: Mapping[int, Sequence[str]] = dataclasses.field(default_factory=dict)


CPU_EFFICIENCY = 0.4
"""Share of the fused multiply-add peak that training reaches on all cores of a CPU, an estimate."""

_gpu = functools.partial(Device, "/device:GPU:{}", "GPU")
_cpu = functools.partial(Device, "/device:CPU:0", "CPU", efficiency=CPU_EFFICIENCY)

_HASWELL = _cpu(
    256 * GIB,
    architecture="avx2",
    cores=18,
    frequency_mhz=2300,
    bandwidth_bytes_per_second=68e9,
    source="Xeon E5-2699 v3: 18 cores at 2.3 GHz, 4 channels DDR4-2133 (Intel ARK); ColocRL's host",
)
_BROADWELL = _cpu(
    512 * GIB,
    architecture="avx2",
    cores=20,
    frequency_mhz=2200,
    bandwidth_bytes_per_second=76.8e9,
    source="Xeon E5-2698 v4: 20 cores at 2.2 GHz, 4 channels DDR4-2400 (Intel ARK); DGX-1's socket",
)
_CASCADE_LAKE = _cpu(
    192 * GIB,
    architecture="avx512",
    cores=24,
    frequency_mhz=2500,
    bandwidth_bytes_per_second=140.8e9,
    source="Xeon 8259CL: 24 cores at 2.5 GHz, 6 channels DDR4-2933; EC2 g4dn.12xlarge",
)
_ROME = _cpu(
    1024 * GIB,
    architecture="avx2",
    cores=64,
    frequency_mhz=2250,
    bandwidth_bytes_per_second=204.8e9,
    source="EPYC 7742: 64 cores at 2.25 GHz, 8 channels DDR4-3200 (AMD); DGX A100's socket",
)
_SAPPHIRE_RAPIDS = _cpu(
    2048 * GIB,
    architecture="avx512",
    cores=56,
    frequency_mhz=2000,
    bandwidth_bytes_per_second=307.2e9,
    source="Xeon 8480C: 56 cores at 2.0 GHz, 8 channels DDR5-4800 (Intel); DGX H100's socket",
)

# Hybrid cube mesh of the DGX-1 with V100 (DGX-1 user guide; `nvidia-smi topo -m`): six NVLinks
# per GPU, one or two to each of four neighbours.
_DGX1_NVLINKS = (
    "01122000",
    "10210200",
    "12020010",
    "21200001",
    "20000112",
    "02001021",
    "00101202",
    "00012120",
)

_BOXES: Mapping[str, _Box] = {
    "k80": _Box(
        counts=(2, 4, 8),
        gpu=_gpu(
            12 * GIB,
            architecture="3.7",
            cores=13,
            frequency_mhz=875,
            bandwidth_bytes_per_second=240e9,
            efficiency=0.4,
            source="Tesla K80 board specification BD-07317-001, per GPU: 13 SMX, boost 875 MHz, "
            "12 GB, 240 GB/s. Efficiency: Inception-V3 at batch 64 took 2.1 s (30 images/s, "
            "tensorflow.org benchmarks, 2017) or 1.56 s (the contract, section 7), Grappler's "
            "ideal is 0.72",
        ),
        cpu=_HASWELL,
        host_bytes_per_second=10e9,  # PCIe 3 x16, 15.75 GB/s nominal, shared by a board's two GPUs
        peer_bytes_per_second=10e9,
    ),
    "k40": _Box(
        counts=(8,),
        gpu=_gpu(
            12 * GIB,
            architecture="3.5",
            cores=15,
            frequency_mhz=875,
            bandwidth_bytes_per_second=288e9,
            efficiency=0.4,
            source="Tesla K40 board specification BD-06902-001: 15 SMX, boost 875 MHz, 12 GB, "
            "288 GB/s. Efficiency: the K80's, same Kepler multiprocessors",
        ),
        cpu=_HASWELL,
        host_bytes_per_second=10e9,
        peer_bytes_per_second=10e9,
    ),
    "p100": _Box(
        counts=(2, 4),
        gpu=_gpu(
            16 * GIB,
            architecture="6.0",
            cores=56,
            frequency_mhz=1303,
            bandwidth_bytes_per_second=732e9,
            efficiency=0.6,
            source="Tesla P100 PCIe 16 GB data sheet: 56 SMs, boost 1303 MHz, 732 GB/s. "
            "Efficiency: Inception-V3 at batch 64 ran at 142 images/s on a DGX-1's P100 SXM2 "
            "(tensorflow.org benchmarks, 2017), for which Grappler's ideal is 230",
        ),
        cpu=_BROADWELL,
        host_bytes_per_second=12e9,  # PCIe 3 x16, what pinned copies reach
        peer_bytes_per_second=12e9,
    ),
    "v100": _Box(
        counts=(4, 8),
        gpu=_gpu(
            16 * GIB,
            architecture="7.0",
            cores=80,
            frequency_mhz=1530,
            bandwidth_bytes_per_second=900e9,
            efficiency=0.6,
            source="Tesla V100 SXM2 data sheet: 80 SMs, boost 1530 MHz, 16 GB, 900 GB/s, six "
            "NVLinks of 25 GB/s. Efficiency: the P100's; fp32 without tensor cores",
        ),
        cpu=_BROADWELL,
        host_bytes_per_second=12e9,
        # One NVLink of 25 GB/s; two in a pair reach 47.9 GB/s (Dell C4130 white paper, table 3).
        peer_bytes_per_second=24e9,
        peer_latency_seconds=NVLINK_LATENCY_SECONDS,
        nvlinks={4: ("0222", "2022", "2202", "2220"), 8: _DGX1_NVLINKS},
    ),
    "a100": _Box(
        counts=(8,),
        gpu=_gpu(
            40 * GIB,
            architecture="8.0",
            cores=108,
            frequency_mhz=1410,
            bandwidth_bytes_per_second=1555e9,
            efficiency=0.9,
            source="A100 SXM4 40 GB data sheet: 108 SMs, boost 1410 MHz, 1555 GB/s, NVSwitch "
            "300 GB/s each way. Efficiency: estimate against the 19.5 TFLOPS of plain fp32; "
            "TensorFlow multiplies in TF32, peak 156 TFLOPS, which makes up for the usual loss",
        ),
        cpu=_ROME,
        host_bytes_per_second=24e9,  # PCIe 4 x16, 31.5 GB/s nominal
        peer_bytes_per_second=240e9,  # 80 % of 300 GB/s
        peer_latency_seconds=NVLINK_LATENCY_SECONDS,
    ),
    "h100": _Box(
        counts=(8,),
        gpu=_gpu(
            80 * GIB,
            architecture="9.0",
            cores=132,
            frequency_mhz=1980,
            bandwidth_bytes_per_second=3350e9,
            efficiency=0.7,
            source="H100 SXM5 data sheet: 132 SMs, boost 1980 MHz, 67 TFLOPS fp32, 80 GB, "
            "3.35 TB/s, NVSwitch 450 GB/s each way. Efficiency: estimate; as for the A100, but "
            "fp32 has twice the lanes and TF32 gains less",
        ),
        cpu=_SAPPHIRE_RAPIDS,
        host_bytes_per_second=50e9,  # PCIe 5 x16, 63 GB/s nominal
        peer_bytes_per_second=360e9,  # 80 % of 450 GB/s
        peer_latency_seconds=NVLINK_LATENCY_SECONDS,
    ),
    "t4": _Box(
        counts=(4,),
        gpu=_gpu(
            16 * GIB,
            architecture="7.5",
            cores=40,
            frequency_mhz=1590,
            bandwidth_bytes_per_second=320e9,
            efficiency=0.4,
            source="T4 data sheet: 40 SMs, boost 1590 MHz, 16 GB, 320 GB/s, 70 W. Efficiency: "
            "estimate, low because 70 W don't sustain the boost clock under fp32 load",
        ),
        cpu=_CASCADE_LAKE,
        host_bytes_per_second=12e9,
        peer_bytes_per_second=10e9,  # no peer access through the CPU's root ports: two copies
    ),
}


def names() -> tuple[str, ...]:
    """All named clusters: "k80x2", "k80x4", ..."""
    return tuple(f"{model}x{count}" for model, box in _BOXES.items() for count in box.counts)


def named(name: str) -> Cluster:
    """The named cluster.

    Raises:
      ClusterError: there is none of that name.
    """
    if name not in names():
        raise ClusterError(
            f"looking up cluster {name!r}: there is none{did_you_mean(name, names())} "
            f"Named clusters: {', '.join(names())}"
        )
    model, _, count = name.partition("x")
    return _cluster(name, _BOXES[model], int(count))


def _cluster(name: str, box: _Box, count: int) -> Cluster:
    gpus = [dataclasses.replace(box.gpu, name=box.gpu.name.format(i)) for i in range(count)]
    rate = np.full((count + 1, count + 1), box.host_bytes_per_second)
    latency = np.full((count + 1, count + 1), PCIE_LATENCY_SECONDS)
    if count in box.nvlinks:
        links = np.array([[int(n) for n in row] for row in box.nvlinks[count]])
        rate[1:, 1:] = np.where(links > 0, links * box.peer_bytes_per_second, rate[1:, 1:])
        latency[1:, 1:] = np.where(links > 0, box.peer_latency_seconds, PCIE_LATENCY_SECONDS)
    else:
        rate[1:, 1:], latency[1:, 1:] = box.peer_bytes_per_second, box.peer_latency_seconds
    np.fill_diagonal(rate, np.inf)
    np.fill_diagonal(latency, 0.0)
    return Cluster(name, "duplex", (box.cpu, *gpus), latency, rate)

"""The figures of this host's CPU and GPUs, as the operating system and TensorFlow have them.

Neither knows the memory bandwidth of CPUs; it has the defaults below until `tfplace calibrate`
measures it.
"""

import pathlib
import re

import psutil

from graphs.cluster import Device
from graphs.errors import ClusterError
from graphs.pricing.grappler_costs import list_devices
from graphs.protos import Json

CORE_BYTES_PER_SECOND = 10e9
"""About the memory bandwidth that one core reaches."""
HOST_BYTES_PER_SECOND = 100e9
"""About the most that all cores of a host reach together."""

CPU_EFFICIENCY = 0.9
"""Measured on one EPYC core: unrolled LSTM training steps reached 0.91 to 1.04 of the ideal at
64 flops per cycle and 10 GB/s (`tfplace/docs/decisions/008-prices-without-a-run.md`). Traced times
replace it wherever ops can be run."""


def this_cpu(name: str, num_cores: int) -> Device:
    """This host's CPU, or some of its cores."""
    clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _cpuinfo(), re.MULTILINE)
    return Device(
        name=name,
        type="CPU",
        memory_bytes=memory_bytes(),
        efficiency=CPU_EFFICIENCY,
        architecture=_cpu_architecture(),
        cores=num_cores,
        frequency_mhz=round(float(clock.group(1))) if clock else Device.frequency_mhz,
        bandwidth_bytes_per_second=min(num_cores * CORE_BYTES_PER_SECOND, HOST_BYTES_PER_SECOND),
        source="this host's /proc; memory bandwidth assumed",
    )


def local_gpus(count: int) -> list[Device]:
    """This host's GPUs, as many as TensorFlow sees; ClusterError: their figures can't be read."""
    gpus = [device for device in list_devices() if device.properties.type == "GPU"]
    if len(gpus) != count:
        raise ClusterError(
            f"looking at this host's GPUs: TensorFlow lists {count}, but Grappler could read the "
            f"figures of {len(gpus)}; describe them in a cluster file (--cluster=FILE.json)"
        )
    return [
        Device(
            name=f"/device:GPU:{i}",
            type="GPU",
            memory_bytes=int(device.properties.memory_size),
            architecture=device.properties.environment["architecture"],
            cores=int(device.properties.num_cores),
            frequency_mhz=int(device.properties.frequency),
            bandwidth_bytes_per_second=float(device.properties.bandwidth) * 1e3,
            source=f"CUDA's properties of this host's {device.properties.model}",
            precision="tf32",
        )
        for i, device in enumerate(sorted(gpus, key=_number))  # Grappler lists them in any order
    ]


def _number(device: Json) -> int:
    return int(device.name.rpartition(":")[2])


def memory_bytes() -> int:
    """The host's memory, or the control group's limit where that is lower."""
    total = int(psutil.virtual_memory().total)
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()).isdigit():
        total = min(total, int(text))
    return total


def _cpu_architecture() -> str:
    flags = set(" ".join(re.findall(r"^(?:flags|Features)\s*:(.*)$", _cpuinfo(), re.M)).split())
    for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"), ("avx", "avx"), ("sse2", "sse")):
        if flag in flags:
            return name
    return "neon" if "asimd" in flags else ""


def processor() -> str:
    """The model of this host's CPU; empty where the system does not name it."""
    match = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match.group(1) if match else ""


def _cpuinfo() -> str:
    return pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")

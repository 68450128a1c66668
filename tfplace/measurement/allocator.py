"""What TensorFlow's allocators of this process say of their use. Imported by children only.

A GPU's allocator counts every allocation. The CPU's (oneDNN's, on x86) counts those of at least
256 KiB, in chunks of its own sizes, and all CPU devices of a process share it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfplace.measurement.device_name import device_key
from tfplace.measurement.training_run import RunMemory

CPU_LIMIT_VARIABLE = "TF_MKL_ALLOC_MAX_BYTES"
"""Environment variable: the most bytes that the CPU's allocator gives out; read at its start."""


def memory_of_devices(device_names: Sequence[str], reset: bool) -> dict[str, RunMemory]:
    """{device: use} of this process' devices; one whose allocator counts nothing is left out.

    Args:
      device_names: as a cluster spells them; those with a job are another process'.
      reset: whether their peaks begin anew afterwards.
    """
    keys = {name: device_key(name) for name in device_names}
    num_cpus = sum(key.type == "CPU" and not key.job for key in keys.values())
    uses = {}
    for name, key in keys.items():
        is_shared = key.type == "CPU" and num_cpus > 1
        use = None if key.job or is_shared else memory_use(f"{key.type}:{key.index}", reset)
        if use is not None:
            uses[name] = use
    return uses


def memory_use(device: str, reset: bool) -> RunMemory | None:
    """What the allocator of "CPU:0" or "GPU:1" counted; None where it does not count."""
    import tensorflow as tf

    try:
        counted = tf.config.experimental.get_memory_info(device)
        if reset:
            tf.config.experimental.reset_memory_stats(device)
    except (ValueError, tf.errors.OpError):
        return None
    return RunMemory(int(counted["current"]), int(counted["peak"]))

"""Asks TensorFlow's allocators of this process, a child, how much memory they have given out.

A GPU's allocator counts every allocation. The CPU's, where TensorFlow uses oneDNN (by itself on
processors with AVX-512's or AMX's instructions for neural networks), counts those of at least 256
KiB, in chunks of its own sizes. Elsewhere the plain one counts nothing and knows no limit, but one
like the GPU's can take its place. All CPU devices of a process share it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfplace.measurement.device_name import device_key


def limit_cpu_memory(num_bytes: int) -> None:
    """Has this process' ops on its CPU take no more than that; before it has any device."""
    from tensorflow.python.util import _pywrap_util_port

    if _pywrap_util_port.IsMklEnabled():
        os.environ["TF_MKL_ALLOC_MAX_BYTES"] = str(num_bytes)
    else:
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(max(num_bytes // 2**20, 1))


def peaks_of_devices(device_names: Sequence[str], reset: bool) -> dict[str, int]:
    """{device: bytes} of this process' devices; one whose allocator counts nothing is left out.

    Args:
      device_names: as a cluster spells them; those with a job are another process'.
      reset: whether the peaks begin anew afterwards.
    """
    keys = {name: device_key(name) for name in device_names if not device_key(name).job}
    num_cpus = sum(key.type == "CPU" for key in keys.values())
    peaks = {}
    for name, key in keys.items():
        is_shared = key.type == "CPU" and num_cpus > 1
        peak = None if is_shared else peak_bytes(f"{key.type}:{key.index}", reset)
        if peak is not None:
            peaks[name] = peak
    return peaks


def peak_bytes(device: str, reset: bool) -> int | None:
    """The most at a time that "CPU:0" or "GPU:1" gave out; None where that is not counted."""
    import tensorflow as tf

    try:
        peak = tf.config.experimental.get_memory_info(device)["peak"]
        if reset:
            tf.config.experimental.reset_memory_stats(device)
    except (ValueError, tf.errors.OpError):
        return None
    return int(peak)

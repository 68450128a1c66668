"""Asks this process, a child, how much memory TensorFlow's allocators have given out.

That is told twice. What ops asked for is the sum of the buffers that were held at a time, read from
the profiler's record of every allocation. What an allocator counts is the sum of its chunks: a free
one that is less than twice as large as asked is handed out whole, so the same step counts 0 to 40 %
more, by what was freed before it.

A GPU's allocator counts every allocation. The CPU's counts and limits nothing, or, where TensorFlow
uses oneDNN (by itself on processors with AVX-512's or AMX's instructions for neural networks), only
what takes 256 KiB or more. One like the GPU's can take the place of either. All CPU devices of a
process share it.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import graphs.late_tensorflow as tf
from graphs.host.scratch import scratch_directory
from graphs.protos import Message
from tfplace.measurement.device_name import device_key

_PEAKS_BEGIN = "tfplace: peaks begin"
_FIRST_PIECES = 2**22
"""Bytes that such an allocator may have taken already, for the shape of what it is asked for."""
_OF_CPU = frozenset({"bfc_cpu_allocator_for_gpu", "mklcpu"})


@dataclasses.dataclass(frozen=True)
class DevicePeak:
    """The most that a device held at a time.

    Attributes:
      counted: bytes of its allocator's chunks.
      asked: bytes that ops asked for; None where they were not recorded.
    """

    counted: int
    asked: int | None = None


def limit_cpu_memory(num_bytes: int) -> None:
    """Has this process' ops on its CPU take no more than that; before it has any device."""
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(max(num_bytes // 2**20, 1))


def take_at_once(num_bytes: int) -> None:
    """Has a limited CPU's allocator take all of its memory in one piece, as a GPU's does.

    By itself it takes pieces of growing sizes, and no tensor lies across two of them: half of a
    small limit may be of no use to a large tensor. No page of it is touched.
    """
    size = num_bytes // 2**20 * 2**20 - _FIRST_PIECES
    if size > 0:
        with contextlib.suppress(tf.errors.OpError), tf.device("CPU:0"):  # then it grows
            tf.raw_ops.Empty(shape=[size], dtype=tf.uint8, init=False)


class Peaks:
    """The peaks of this process' devices; it records allocations from the first reset on."""

    def __init__(self) -> None:
        """Records nothing yet."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def of_devices(self, device_names: Sequence[str], reset: bool) -> dict[str, DevicePeak]:
        """{device: peak}; a device whose allocator counts nothing is left out.

        Args:
          device_names: as a cluster spells them; those with a job are another process'.
          reset: whether the peaks begin anew afterwards; otherwise the record ends.
        """
        keys = {name: device_key(name) for name in device_names if not device_key(name).job}
        num_cpus = sum(key.type == "CPU" for key in keys.values())
        asked = {} if reset else self._recorded()
        peaks = {}
        for name, key in keys.items():
            is_shared = key.type == "CPU" and num_cpus > 1
            counted = None if is_shared else _counted(f"{key.type}:{key.index}", reset)
            if counted is not None:
                allocator = "CPU" if key.type == "CPU" else f"{key.type}_{key.index}_bfc"
                peaks[name] = DevicePeak(counted, asked.get(allocator))
        if reset:
            self._begin()
        return peaks

    def _begin(self) -> None:
        if self._folder is None:
            self._folder = scratch_directory()
            options = tf.profiler.experimental.ProfilerOptions(
                host_tracer_level=1, python_tracer_level=0, device_tracer_level=0
            )
            tf.profiler.experimental.start(self._folder.name, options)
        with tf.profiler.experimental.Trace(_PEAKS_BEGIN):
            pass

    def _recorded(self) -> dict[str, int]:
        """{allocator: the most bytes asked for and not given back at a time}; ends the record."""
        folder, self._folder = self._folder, None
        if folder is None:
            return {}
        held: dict[str, dict[int, int]] = {}
        now: dict[str, int] = {}
        peaks: dict[str, int] = {}
        for name, allocator, address, num_bytes in _allocations(folder):
            if name == _PEAKS_BEGIN:
                peaks = dict(now)
                continue
            buffers = held.setdefault(allocator, {})
            # What was given out before the record began is none of it.
            change = -buffers.pop(address, 0)
            if name == "MemoryAllocation":
                buffers[address] = num_bytes
                change += num_bytes
            now[allocator] = now.get(allocator, 0) + change
            peaks[allocator] = max(peaks.get(allocator, 0), now[allocator])
        return peaks


def _allocations(folder: tempfile.TemporaryDirectory[str]) -> Iterator[tuple[str, str, int, int]]:
    """(event, allocator, address, bytes asked for) of the profiler's record, in order of time."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with folder:
        tf.profiler.experimental.stop()
        (path,) = Path(folder.name).rglob("*.xplane.pb")
        record = xplane_pb2.XSpace.FromString(path.read_bytes())
    events: list[tuple[int, int, str, Sequence[Message], dict[int, str]]] = []
    for plane in record.planes:
        names = {key: each.name for key, each in plane.event_metadata.items()}
        texts = {key: each.name for key, each in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name = names[event.metadata_id]
                if name in ("MemoryAllocation", "MemoryDeallocation", _PEAKS_BEGIN):
                    time = line.timestamp_ns * 1000 + event.offset_ps
                    events.append((time, len(events), name, event.stats, texts))
    for _, _, name, stats, texts in sorted(events, key=lambda event: event[:2]):
        values = {texts[stat.metadata_id]: stat for stat in stats}
        allocator = values["allocator_name"] if name != _PEAKS_BEGIN else None
        if allocator is None:
            yield name, "", 0, 0
            continue
        owner = texts.get(allocator.ref_value, allocator.str_value)
        both = [values[key] for key in ("addr", "requested_bytes")]
        address, asked = (int(stat.uint64_value or stat.int64_value) for stat in both)
        yield name, "CPU" if owner in _OF_CPU else owner, address, asked


def _counted(device: str, reset: bool) -> int | None:
    """The most at a time that "CPU:0" or "GPU:1" gave out; None where that is not counted."""
    try:
        peak = tf.config.experimental.get_memory_info(device)["peak"]
        if reset:
            tf.config.experimental.reset_memory_stats(device)
    except (ValueError, tf.errors.OpError):
        return None
    return int(peak)

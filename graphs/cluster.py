"""Devices, the links between them, and which transfers share a channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray

COMMUNICATION_RULES = ("duplex", "sender", "half_duplex", "pairwise")


@dataclasses.dataclass(frozen=True)
class Device:
    """One device that ops can be placed on.

    Attributes:
      name: the string written into the graph: "/device:GPU:1" on this host, and
        "/job:worker/task:1/device:CPU:0" for another task.
      type: "CPU" or "GPU".
      memory_bytes: all of its memory.
      slots: ops that run at once.
      efficiency: share (0, 1] of Grappler's ideal speed that real training reaches.
      architecture: as Grappler wants it: "3.7" for a K80; may be empty.
      cores, frequency_mhz, bandwidth_bytes_per_second: what Grappler prices with.
      address: "host:port" of the task; empty on this host.
      source: where the figures are from.
    """

    name: str
    type: str
    memory_bytes: int
    slots: int = 1
    efficiency: float = 1.0
    architecture: str = ""
    cores: int = 1
    frequency_mhz: int = 1000
    bandwidth_bytes_per_second: float = 1e10
    address: str = ""
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices and links.

    Attributes:
      name: as asked for: "k80x2", "workers:2", "local", or the file's.
      communication: one of COMMUNICATION_RULES.
      devices: [D]; the first CPU of this host or of task 0 comes first.
      link_latency: f8[D, D] seconds; diagonal 0.
      link_bytes_per_second: f8[D, D]; diagonal inf.
    """

    name: str
    communication: str
    devices: Sequence[Device]
    link_latency: FloatArray
    link_bytes_per_second: FloatArray

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    def link_channels(self) -> IntArray:
        """i4[D, D, 2]: the channels that a transfer from d to e holds; -1 unused.

        duplex: d's way out and e's way in. sender: d's way out. half_duplex: d's one channel
        and e's one channel. pairwise: a channel of its own for each ordered pair.
        """
        size = self.num_devices
        source, target = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
        unused = np.full((size, size), -1)
        first, second = {
            "duplex": (source, size + target),
            "sender": (source, unused),
            "half_duplex": (source, target),
            "pairwise": (source * size + target, unused),
        }[self.communication]
        channels = np.stack([first, second], axis=-1).astype(np.int32)
        channels[np.arange(size), np.arange(size)] = -1
        return channels

"""Devices, the links between them, and which transfers share a channel."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray

Interval = tuple[float, float, float]
"""A value, and the lowest and highest that are plausible."""
STEP_START = "step_start_seconds"
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
      efficiency: share (0, 1] of Grappler's ideal speed that real training reaches; with a
        precision, of the prices by class.
      precision: "fp32" or "tf32": a GPU is priced by the class of each kernel, and multiplies fp32
        values so, where it can; empty for one efficiency of all kernels.
      architecture: as Grappler wants it: "3.7" for a K80; may be empty.
      cores: of a CPU, or multiprocessors of a GPU; Grappler prices with them.
      frequency_mhz: of the cores.
      bandwidth_bytes_per_second: of its memory.
      address: "host:port" of the task; empty on this host.
      source: where the figures are from.
      op_seconds: what an op costs beside its work: the executor's dispatch, or a GPU's launch.
      step_seconds: what the device adds to a step in which any op runs on it.
      compute_slowdown: by what share an op that computes takes longer while all other devices that
        share its memory are busy.
      memory_slowdown: the same of an op that streams through memory.
      executor_threads: how many threads of TensorFlow's executor start ops there, as far as known.
      network: the network card that it shares with others; empty where it shares none.
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
    op_seconds: float = 0.0
    step_seconds: float = 0.0
    compute_slowdown: float = 0.0
    memory_slowdown: float = 0.0
    executor_threads: int = 1
    network: str = ""
    precision: str = ""

    @property
    def host(self) -> str:
        """The host part of the address, or the network card; empty on this host."""
        return self.address.rpartition(":")[0] or self.network

    @property
    def task(self) -> str:
        return task_of(self.name)


def task_of(device_name: str) -> str:
    """The task of a device, as "/job:worker/task:1"; empty where its name has none."""
    return device_name.partition("/device:")[0]


@dataclasses.dataclass(frozen=True)
class TransferWork:
    """The time that a transfer takes of its two devices, in a slot in which no op runs then.

    A transfer of n bytes from d to e takes sender_seconds[d, e] + n * sender_seconds_per_byte[d, e]
    of d, and what the receiver's figures say of e: over gRPC the cores that compute copy it. These
    seconds are part of the link's latency and bandwidth, not in addition to them.

    Attributes:
      sender_seconds: f8[D, D], diagonal 0.
      sender_seconds_per_byte: f8[D, D], diagonal 0.
      receiver_seconds: f8[D, D], diagonal 0.
      receiver_seconds_per_byte: f8[D, D], diagonal 0.
    """

    sender_seconds: FloatArray
    sender_seconds_per_byte: FloatArray
    receiver_seconds: FloatArray
    receiver_seconds_per_byte: FloatArray

    @classmethod
    def none(cls, num_devices: int) -> "TransferWork":
        """Transfers that take nothing of the devices, as those of a GPU's copy engines do."""
        return cls(*(np.zeros((num_devices, num_devices)) for _ in range(4)))


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices and links.

    Attributes:
      name: as asked for: "k80x2", "workers:2", "local", or the file's.
      communication: one of COMMUNICATION_RULES.
      devices: [D]; the first CPU of this host or of task 0 comes first.
      link_latency: f8[D, D] seconds; diagonal 0.
      link_bytes_per_second: f8[D, D]; diagonal inf.
      origin: the `--cluster` value that was calibrated: "local", "workers:2"; else empty.
      step_overhead_seconds: what the client's dispatch adds to every step, wherever ops run.
      fetch_seconds: what each fetched tensor adds to a step, on its way to the client.
      transfer_work: what transfers take of the devices; None means nothing.
      taught: {number: its value} of what real runs showed these figures to miss, as
        `machine_numbers` names it.
    """

    name: str
    communication: str
    devices: Sequence[Device]
    link_latency: FloatArray
    link_bytes_per_second: FloatArray
    origin: str = ""
    step_overhead_seconds: float = 0.0
    fetch_seconds: float = 0.0
    transfer_work: TransferWork | None = None
    taught: Mapping[str, Interval] = dataclasses.field(default_factory=dict)

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    def dispatch_seconds(self, device_of_op: IntArray, num_fetched_tensors: int = 0) -> float:
        """The seconds of a measured step beyond its makespan: the client's dispatch and fetches.

        The makespan (the contract, section 6) is without them. Add them where a prediction is
        compared with a measured step.

        Args:
          device_of_op: i4[N].
          num_fetched_tensors: tensors such as the loss; a training op is none.
        """
        shares = sum(self.devices[d].step_seconds for d in np.unique(device_of_op).tolist())
        overhead = self.step_overhead_seconds + self.taught.get(STEP_START, (0.0,))[0]
        return overhead + shares + num_fetched_tensors * self.fetch_seconds

    def link_channels(self) -> IntArray:
        """i4[D, D, 2]: the channels that a transfer from d to e holds; -1 unused.

        Between devices with different network cards these are the cards' channels, by the same rule
        with cards in place of devices.
        """
        channels = rule_channels(self.communication, self.num_devices)
        names = [device.network for device in self.devices]
        cards = sorted(set(names) - {""})
        if len(cards) < 2:
            return channels
        card = np.array([cards.index(name) if name else -1 for name in names])
        between = (card[:, None] >= 0) & (card >= 0) & (card[:, None] != card)
        of_cards = rule_channels(self.communication, len(cards))[card[:, None], card]
        of_cards = np.where(of_cards < 0, -1, of_cards + channels.max() + 1)
        return np.where(between[..., None], of_cards, channels).astype(np.int32)


def rule_channels(communication: str, num_devices: int) -> IntArray:
    """i4[D, D, 2]: the channels that a transfer from d to e holds under a rule; -1 unused.

    duplex: d's way out and e's way in. sender: d's way out. half_duplex: d's one channel
    and e's one channel. pairwise: a channel of its own for each ordered pair.
    """
    numbers = np.arange(num_devices)
    source, target = np.meshgrid(numbers, numbers, indexing="ij")
    unused = np.full_like(source, -1)
    first, second = {
        "duplex": (source, num_devices + target),
        "sender": (source, unused),
        "half_duplex": (source, target),
        "pairwise": (source * num_devices + target, unused),
    }[communication]
    channels = np.stack([first, second], axis=-1).astype(np.int32)
    channels[numbers, numbers] = -1
    return channels

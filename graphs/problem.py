"""The placement problem that the simulator sees: op graph, costs and cluster in one value."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.cluster import task_of
from graphs.executor_model import ExecutorModel
from graphs.op_graph import FloatArray, IntArray, LongArray, OpGraph


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything that decides a makespan, apart from the placement (the contract, section 6).

    The contract is `tfplace/docs/contract.md`.

    Attributes:
      graph: the op graph.
      op_seconds: f8[N, D]; inf where the op has no kernel on the device.
      pinned_device: i4[N]; -1 where the op is free.
      device_names: [D].
      device_types: [D] "CPU", "GPU"; equal types with equal costs need not be equal devices.
      device_slots: i4[D] ops that run at once.
      device_memory_bytes: i8[D].
      link_latency: f8[D, D] seconds.
      link_bytes_per_second: f8[D, D].
      link_channels: i4[D, D, 2] channels that a transfer holds; -1 unused.
      memory_reserve: fraction of each device's memory that is kept free.
      communication: name of the channel rule.
      executor: how ops and transfers share a device's slots; None for rules
        1 to 6 alone.
      start_rank: i4[N], >= 0: the ready op of the least rank starts first, instead of rule 1's
        first come, first served. Only a search for an order has it: what it finds becomes
        control edges of the graph, so that it is never in a dump.
    """

    graph: OpGraph
    op_seconds: FloatArray
    pinned_device: IntArray
    device_names: Sequence[str]
    device_types: Sequence[str]
    device_slots: IntArray
    device_memory_bytes: LongArray
    link_latency: FloatArray
    link_bytes_per_second: FloatArray
    link_channels: IntArray
    memory_reserve: float
    communication: str
    executor: ExecutorModel | None = None
    start_rank: IntArray | None = None

    @property
    def num_ops(self) -> int:
        return self.graph.num_ops

    @property
    def num_devices(self) -> int:
        return len(self.device_names)

    @property
    def num_groups(self) -> int:
        """Units that can be placed apart: colocation groups and single ops."""
        group = self.graph.colocation_group
        return int((group < 0).sum()) + len(np.unique(group[group >= 0]))

    @property
    def device_tasks(self) -> list[str]:
        """[D] the task of each device; see `task_of`."""
        return [task_of(name) for name in self.device_names]

    def usable_bytes(self) -> FloatArray:
        """f8[D]: memory minus reserve; a peak above it is infeasible."""
        return self.device_memory_bytes.astype(np.float64) * (1.0 - self.memory_reserve)

    def allowed(self) -> npt.NDArray[np.bool_]:
        """bool[N, D], read-only: where an op may lie, by kernel and pin, its group's too.

        A colocation group may lie only where each of its ops may.
        """
        return self._allowed

    @functools.cached_property
    def _allowed(self) -> npt.NDArray[np.bool_]:
        allowed = np.isfinite(self.op_seconds)
        pinned = self.pinned_device >= 0
        allowed[pinned] &= np.eye(self.num_devices, dtype=bool)[self.pinned_device[pinned]]
        group = self.graph.colocation_group
        member = group >= 0
        if member.any():
            joint = np.ones((int(group.max()) + 1, self.num_devices), dtype=bool)
            np.logical_and.at(joint, group[member], allowed[member])
            allowed[member] = joint[group[member]]
        allowed.flags.writeable = False  # every caller gets this one array
        return allowed


# A device for every op, and what such a placement is worth.


@dataclasses.dataclass(frozen=True)
class Grouping:
    """A partition of the ops: what a policy decides about as one.

    Attributes:
      group_of_op: i4[N], values 0..num_groups-1, every value taken.
      num_groups: how many groups there are.
    """

    group_of_op: IntArray
    num_groups: int


@dataclasses.dataclass(frozen=True)
class Placement:
    """A device for every op.

    Attributes:
      device_of_op: i4[N] indices into the cluster's devices.
    """

    device_of_op: IntArray


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a placement costs.

    Attributes:
      step_seconds: time of one training run.
      peak_bytes: i8[D] or empty where it is not known.
      source: "simulated" or "measured".
    """

    step_seconds: float
    peak_bytes: tuple[int, ...]
    source: str


@dataclasses.dataclass(frozen=True)
class Infeasible:
    """Why a placement can't run: a value, not an exception.

    Attributes:
      reason: "memory", "no_kernel", "colocation", "pin", "timeout", "crash" or "error".
      message: one sentence for a person.
      peak_bytes: i8[D] or empty where it is not known.
      step_seconds: what the step would take if it ran, where that is known; else inf.
    """

    reason: str
    message: str
    peak_bytes: tuple[int, ...] = ()
    step_seconds: float = float("inf")


Outcome = Measurement | Infeasible

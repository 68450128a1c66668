"""How TensorFlow's executor runs ops of CPUs: depth-first, and transfers are work of its thread.

What rules 1 to 6 of the contract (`tfplace/docs/contract.md`, section 6) leave out and calibration
measures (`Cluster.transfer_work`). A problem that has it is simulated by rules 7 to 10 of that
section, which tests/reference_simulator.py has a second time.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.cluster import Cluster
from graphs.op_graph import FloatArray, IntArray
from graphs.op_types import INLINE


@dataclasses.dataclass(frozen=True)
class ExecutorModel:
    """What a depth-first executor needs to know.

    Attributes:
      send_seconds: f8[D, D, 2] what a transfer takes of its sender: fixed, and per byte.
      receive_seconds: f8[D, D, 2] what it takes of its receiver. Both are part of what the link's
        latency and bandwidth say.
      runs_inline: bool[N] ops that go before the others that became ready with them.
      op_slowdown: f8[N, D] by what share an op takes longer while all devices that share the
        device's memory are busy; None for none.
      shares_memory: bool[D, D], symmetric, diagonal false; None where op_slowdown is.
      op_turn: i4[K, N], each >= 0 and below N, the op's place in each of K orders in which
        TensorFlow may list the ops, by which rule 7 goes; None for the ops' indices alone.
      sends_first: b[D] devices whose sends go before all else: where the executor has a second
        thread, that makes them while the first goes on. None for no device.
    """

    send_seconds: FloatArray
    receive_seconds: FloatArray
    runs_inline: npt.NDArray[np.bool_]
    op_slowdown: FloatArray | None = None
    shares_memory: npt.NDArray[np.bool_] | None = None
    op_turn: IntArray | None = None
    sends_first: npt.NDArray[np.bool_] | None = None

    def turns(self) -> IntArray:
        """i4[K, N]: op_turn, or the ops' indices."""
        if self.op_turn is not None:
            return self.op_turn
        return np.arange(len(self.runs_inline), dtype=np.int32)[None]


def executor_of(
    cluster: Cluster,
    op_types: Sequence[str],
    memory_share: FloatArray | None = None,
    op_turn: IntArray | None = None,
) -> ExecutorModel | None:
    """The executor of a calibrated cluster; None where transfers take nothing of the devices.

    Args:
      op_types: [N].
      memory_share: f8[N] share [0, 1] of an op's time that it waits for memory; None for no op.
      op_turn: i4[N] the ops' places where a run listed them; None where that is not known. A
        placement changes what Grappler merges and so the order, hence the graph's own counts too.
    """
    work = cluster.transfer_work
    if work is None:
        return None
    sends_first = np.array([device.executor_threads > 1 for device in cluster.devices])
    return ExecutorModel(
        np.stack([work.sender_seconds, work.sender_seconds_per_byte], axis=-1),
        np.stack([work.receiver_seconds, work.receiver_seconds_per_byte], axis=-1),
        _run_inline(op_types),
        *_contention(cluster, np.zeros(len(op_types)) if memory_share is None else memory_share),
        None if op_turn is None else np.stack([op_turn, np.arange(len(op_types))]).astype(np.int32),
        sends_first if sends_first.any() else None,
    )


def depth_first(op_types: Sequence[str], num_devices: int) -> ExecutorModel:
    """The order of ops alone: transfers take no work."""
    nothing = np.zeros((num_devices, num_devices, 2))
    return ExecutorModel(nothing, nothing, _run_inline(op_types))


def _run_inline(op_types: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.array([op_type in INLINE for op_type in op_types], dtype=bool)


def shares_memory(cluster: Cluster) -> npt.NDArray[np.bool_]:
    """bool[D, D]: different CPU devices of one host, whose cores share caches and memory."""
    hosts = np.array([device.host for device in cluster.devices])
    is_cpu = np.array([device.type == "CPU" for device in cluster.devices])
    same = (hosts[:, None] == hosts) & is_cpu[:, None] & is_cpu
    return np.asarray(same & ~np.eye(len(hosts), dtype=bool))


def _contention(
    cluster: Cluster, memory_share: FloatArray
) -> tuple[FloatArray | None, npt.NDArray[np.bool_] | None]:
    """Executor's op_slowdown and shares_memory."""
    compute = np.array([device.compute_slowdown for device in cluster.devices])
    memory = np.array([device.memory_slowdown for device in cluster.devices])
    shared = shares_memory(cluster)
    if not shared.any() or not (compute.any() or memory.any()):
        return None, None
    return compute + memory_share[:, None] * (memory - compute), shared


def wire(
    executor: ExecutorModel, latency: FloatArray, bytes_per_second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Latency and bytes per second, f8[D, D] each, less what the two ends work for a transfer.

    latency' = max(latency - send - receive, 0)
    1 / rate' = max(1 / rate - send per byte - receive per byte, 0)
    """
    both = executor.send_seconds + executor.receive_seconds
    per_byte = np.maximum(1.0 / bytes_per_second - both[..., 1], 0.0)
    with np.errstate(divide="ignore"):
        return np.maximum(latency - both[..., 0], 0.0), 1.0 / per_byte

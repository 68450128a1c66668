"""A problem without what makes it hard: what every bound here may rely on (docs/bounds.md).

Devices with equal costs and slots form a class; K classes.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from graphs.executor_model import wire
from graphs.graph_edges import row_starts
from graphs.host.compiled import compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class DeviceClasses:
    """Devices that are alike.

    Attributes:
      class_of_device: i4[D].
      num_devices: i8[K] of each class.
      slots: f8[K] of one device of it.
      seconds: f8[N, K]; inf where the op may not lie.
      room_bytes: f8[K] whole usable bytes of all devices of the class together.
    """

    class_of_device: IntArray
    num_devices: LongArray
    slots: FloatArray
    seconds: FloatArray
    room_bytes: FloatArray


@dataclasses.dataclass(frozen=True)
class Edges:
    """Who waits for whom: E pairs of ops, distinct, sorted by the waiting op.

    Attributes:
      row: i8[N+1]: the edges of op n are row[n] .. row[n + 1].
      source: i8[E] the op waited for, always of a lower index.
      cost: f8[E] seconds between the source's end and its tensor's arrival on another device.
    """

    row: LongArray
    source: LongArray
    cost: FloatArray


def device_classes(problem: Problem) -> DeviceClasses:
    """Classes in the order of their first devices."""
    allowed, number = problem.allowed(), dict[tuple[bytes, int], int]()

    def seconds_on(devices: int | LongArray) -> FloatArray:
        return np.where(allowed[:, devices], problem.op_seconds[:, devices], np.inf)

    keys = [
        (seconds_on(device).tobytes(), int(problem.device_slots[device]))
        for device in range(problem.num_devices)
    ]
    class_of_device = np.array([number.setdefault(key, len(number)) for key in keys])
    first = np.unique(class_of_device, return_index=True)[1]
    return DeviceClasses(
        class_of_device=class_of_device.astype(np.int32),
        num_devices=np.bincount(class_of_device).astype(np.int64),
        slots=problem.device_slots[first].astype(np.float64),
        seconds=np.ascontiguousarray(seconds_on(first.astype(np.int64))),
        room_bytes=np.bincount(class_of_device, weights=np.floor(problem.usable_bytes())).astype(
            np.float64
        ),
    )


def forward_edges(problem: Problem) -> Edges:
    """Edges from producers to users."""
    producer, consumer, _ = problem.graph.op_edges()
    return _edges(problem.num_ops, producer, consumer, _transfer_seconds(problem))


def backward_edges(problem: Problem) -> Edges:
    """Edges of the same graph with time reversed: op n stands for op N - 1 - n."""
    producer, consumer, _ = problem.graph.op_edges()
    last, cost = problem.num_ops - 1, _transfer_seconds(problem)
    return _edges(problem.num_ops, last - consumer, last - producer, cost)


def _transfer_seconds(problem: Problem) -> FloatArray:
    """f8[U]: how long each use's tensor is under way at least.

    On one device there is no elsewhere: infinite.
    """
    apart = ~np.eye(problem.num_devices, dtype=bool)
    size = problem.graph.tensor_bytes[problem.graph.use_tensor].astype(np.float64)
    if not apart.any():
        return np.full(len(size), np.inf)
    latency, rate = problem.link_latency, problem.link_bytes_per_second
    send = np.zeros((*latency.shape, 2))
    if problem.executor is not None:
        # A send is work before the wire's time; what a receive takes may fall to another op.
        latency, rate = wire(problem.executor, latency, rate)
        send = problem.executor.send_seconds
    links = np.unique(np.stack([latency + send[..., 0], rate, send[..., 1]])[:, apart], axis=1)
    seconds = [size / r + size * per_byte + fixed for fixed, r, per_byte in links.T]
    return np.asarray(np.min(seconds, axis=0))


def least_hold(problem: Problem) -> FloatArray:
    """f8[T]: how long a transfer of each tensor holds its channels at least."""
    size = problem.graph.tensor_bytes.astype(np.float64)
    apart = ~np.eye(problem.num_devices, dtype=bool)
    if not apart.any():
        return np.zeros(len(size))
    rate = problem.link_bytes_per_second
    if problem.executor is not None:
        rate = wire(problem.executor, problem.link_latency, rate)[1]
    return size / rate[apart].max()


def one_at_a_time(problem: Problem, inward: bool) -> bool:
    """Whether all transfers into (or out of) each device hold one common channel."""
    channels = problem.link_channels if inward else problem.link_channels.transpose(1, 0, 2)
    for device in range(problem.num_devices):
        others = np.delete(channels[:, device], device, axis=0)
        common = set(others[0].tolist()) if len(others) else set()
        for pair in others:
            common &= set(pair.tolist())
        if not common - {-1}:
            return False
    return True


def _edges(num_ops: int, source: IntArray, target: IntArray, cost: FloatArray) -> Edges:
    """Joins parallel edges: the dearest counts."""
    order = np.lexsort((source, target))
    source, target, cost = source[order], target[order], cost[order]
    first = np.ones(len(source), dtype=bool)
    first[1:] = (np.diff(source) != 0) | (np.diff(target) != 0)
    start = np.flatnonzero(first)
    return Edges(
        row=row_starts(target[start], num_ops),
        source=source[start].astype(np.int64),
        cost=np.maximum.reduceat(cost, start) if len(start) else np.zeros(0),
    )


class Sweep(NamedTuple):
    """The relaxed problem, and how soon the ops visited so far can end."""

    row: LongArray  # i8[N+1] of Edges
    source: LongArray  # i8[E] of Edges
    cost: FloatArray  # f8[E] of Edges
    seconds: FloatArray  # f8[N, K] of each op on each class
    least: FloatArray  # f8[N] the least of them
    slots: FloatArray  # f8[K] of one device of a class
    num_devices: LongArray  # i8[K] of a class
    group: LongArray  # i8[N] colocation group, -1 for none
    end: FloatArray  # f8[N, K] filled in: no schedule ends the op sooner on a device of this class
    soonest: FloatArray  # f8[N] filled in: the least of them


def new_sweep(classes: DeviceClasses, edges: Edges, group: LongArray) -> Sweep:
    """A sweep that has not visited any op."""
    return Sweep(
        row=edges.row,
        source=edges.source,
        cost=edges.cost,
        seconds=classes.seconds,
        least=classes.seconds.min(axis=1),
        slots=classes.slots,
        num_devices=classes.num_devices,
        group=group,
        end=np.full(classes.seconds.shape, np.inf),
        soonest=np.full(len(classes.seconds), np.inf),
    )


@compiled_part
def soonest_elsewhere(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can end on any device but one certain device of class `kind`."""
    if sweep.num_devices[kind] > 1:
        return sweep.soonest[op]
    soonest = np.inf
    for other in range(len(sweep.num_devices)):
        if other != kind:
            soonest = min(soonest, sweep.end[op, other])
    return soonest


@compiled_part
def head_on(sweep: Sweep, op: int, kind: int) -> float:
    """How soon an op can start on a device of class `kind`; inf where it can't run there."""
    if sweep.end[op, kind] == np.inf:
        return np.inf
    return sweep.end[op, kind] - sweep.seconds[op, kind]

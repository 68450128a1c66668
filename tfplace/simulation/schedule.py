"""What happens when in one simulated training run."""

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class Transfers:
    """The transfers of one run, X of them, in the order in which they were queued."""

    tensor: IntArray  # i4[X]
    source: IntArray  # i4[X] the device that sends it
    target: IntArray  # i4[X] the device that receives it
    start: FloatArray  # f8[X] seconds; the copy's bytes are held from here
    release: FloatArray  # f8[X] when the link's channels are free again
    arrival: FloatArray  # f8[X] when the tensor is there
    bytes: LongArray  # i8[X]


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Memory of one device over time.

    Attributes:
      seconds: f8[K] ascending, the first 0, the others where the bytes change.
      bytes: i8[K] held from seconds[k] until seconds[k + 1].
    """

    seconds: FloatArray
    bytes: LongArray


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One simulated run.

    Attributes:
      makespan: seconds.
      device_of_op: i4[N] the placement.
      op_start: f8[N] seconds.
      op_end: f8[N] seconds.
      shares: i4[T] whose buffer each tensor is, -1 for its own.
      transfers: what was moved.
      peak_bytes: i8[D] the most that a device holds at once.
    """

    makespan: float
    device_of_op: IntArray
    op_start: FloatArray
    op_end: FloatArray
    shares: IntArray
    transfers: Transfers
    peak_bytes: LongArray


@dataclasses.dataclass(frozen=True)
class HeldIntervals:
    """Everything that is held for a part of the run: H outputs, copies and temp buffers.

    Attributes:
      device: i4[H].
      op: i4[H] the producer, for copies too.
      start: f8[H] seconds.
      end: f8[H] seconds, half-open; end = start where nothing is held, inf where it is kept.
      bytes: i8[H].
    """

    device: IntArray
    op: IntArray
    start: FloatArray
    end: FloatArray
    bytes: LongArray


def memory_use(
    problem: Problem, schedule: Schedule, held: "HeldIntervals | None" = None
) -> list[MemoryUse]:
    """What each device holds over the run (the contract, section 6, rule 6), by the schedule.

    [D]; the maximum of each is the simulation's peak. None for `held` is `held_intervals`.
    """
    held = held or held_intervals(problem, schedule)
    persistent = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(persistent, schedule.device_of_op, problem.graph.op_persistent_bytes)
    uses = []
    for index in range(problem.num_devices):
        here = held.device == index
        seconds = np.concatenate([[0.0], held.start[here], held.end[here]])
        change = np.concatenate(
            [persistent[index : index + 1], held.bytes[here], -held.bytes[here]]
        )
        instants, instant_of_change = np.unique(seconds, return_inverse=True)
        net = np.zeros(len(instants), dtype=np.int64)
        np.add.at(net, instant_of_change, change)
        changing = np.flatnonzero(((net != 0) | (instants == 0)) & np.isfinite(instants))
        uses.append(MemoryUse(instants[changing], np.cumsum(net)[changing]))
    return uses


def held_intervals(problem: Problem, schedule: Schedule) -> HeldIntervals:
    """When each output, received copy and temp buffer is held (the contract, section 6, rule 6)."""
    graph, transfers = problem.graph, schedule.transfers
    size = problem.num_devices
    made_on = schedule.device_of_op[graph.tensor_producer]
    # The end of each tensor's last user on each device, as a flat [T * D].
    last = np.full(graph.num_tensors * size, -np.inf)
    used_on = schedule.device_of_op[graph.use_op]
    np.maximum.at(last, graph.use_tensor * size + used_on, schedule.op_end[graph.use_op])
    own = np.arange(graph.num_tensors) * size + made_on
    np.maximum.at(last, own[transfers.tensor], transfers.arrival)
    # An output without users or transfers goes when its op ends.
    last[own] = np.maximum(last[own], schedule.op_end[graph.tensor_producer])
    last[own[schedule.shares == np.arange(graph.num_tensors)]] = np.inf
    # Last first: what shares a buffer may be shared itself.
    is_inside = (schedule.shares >= 0) & (schedule.shares != np.arange(graph.num_tensors))
    for tensor in np.flatnonzero(is_inside)[::-1].tolist():
        shared = schedule.shares[tensor] * size + made_on[tensor]
        last[shared] = max(last[shared], last[own[tensor]])
    copy_end = last[transfers.tensor * size + transfers.target]
    output_start = schedule.op_start[graph.tensor_producer]
    return HeldIntervals(
        device=np.concatenate([made_on, transfers.target, schedule.device_of_op]),
        op=np.concatenate(
            [
                graph.tensor_producer,
                graph.tensor_producer[transfers.tensor],
                np.arange(graph.num_ops, dtype=np.int32),
            ]
        ),
        start=np.concatenate([output_start, transfers.start, schedule.op_start]),
        end=np.concatenate([last[own], copy_end, schedule.op_end]),
        bytes=np.concatenate(
            [
                np.where(is_inside & graph.tensor_takes_over, 0, graph.tensor_alloc_bytes),
                transfers.bytes,
                graph.op_temp_bytes,
            ]
        ),
    )


def alive_at_peak(held: HeldIntervals, device: int) -> LongArray:
    """i8[A]: which of the intervals hold bytes on a device when most are held there."""
    here = np.flatnonzero((held.device == device) & (held.end > held.start) & (held.bytes > 0))
    if not len(here):
        return here
    start, end, size = held.start[here], held.end[here], held.bytes[here]
    instants, instant_of_change = np.unique(np.concatenate([start, end]), return_inverse=True)
    net = np.zeros(len(instants), dtype=np.int64)
    np.add.at(net, instant_of_change, np.concatenate([size, -size]))
    peak = instants[np.argmax(np.cumsum(net))]
    return here[(start <= peak) & (peak < end)]

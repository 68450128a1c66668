"""What one compiled simulation writes: made once for a problem, used again from run to run."""

from typing import NamedTuple

import numpy as np

from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.simulation.arrays import SimulationArrays

# Positions in Scratch.counts: pending ends, arrivals and copies; transfers and bytes of the run.
NUM_COUNTS = 5
ENDS, ARRIVALS, COPIES, TRANSFERS, TRANSFER_BYTES = range(NUM_COUNTS)


class ExecutorScratch(NamedTuple):
    """What rules 7 to 10 need beside the rest of Scratch.

    Attributes:
      order: i8[1] the one of the executor's orders that is run.
      owed: f8[D] seconds that received tensors add to what next starts on a device.
      owed_since: f8[D] the instant as of which that is so, or since which nothing runs there.
      turns: i8[D, 2] numbers of the last items at the front and at the back of a device's queue.
      fresh: i8[F] the items that one op's end makes ready, a key heap.
    """

    order: LongArray
    owed: FloatArray
    owed_since: FloatArray
    turns: LongArray
    fresh: LongArray


class Scratch(NamedTuple):
    """What one simulation writes; one thread at a time.

    Attributes:
      tracks_memory: whether peaks are found; else only time, in half the time.
      may_give_up: whether a run may be given up at a limit; such a run leaves holders behind, so
        that it can't track memory, too.
      logs: whether transfers are logged, for a schedule.
      pending: i4[N] inputs that are not there yet.
      holders: i4[T*D] what still needs a tensor on a device: users and, where it was made,
        transfers under way. All zero between runs but for what is kept; empty where memory is not
        tracked.
      shares: i4[T] whose buffer each tensor of an op that has started is, -1 for its own; empty
        where memory is not tracked.
      placed: i4[N] the placement that is run.
      running: i4[D] ops, and sends, that run.
      memory: i8[D] bytes.
      peak: i8[D] bytes.
      channel_free: f8[C] seconds.
      ready: i8[N or more] key heaps, one per device in ready[ready_row[d]:].
      ready_row: i4[D].
      ready_count: i4[D] items in each of these heaps.
      op_start: f8[N] seconds.
      op_end: f8[N] seconds.
      end_time: f8[R] pending ends, an event heap.
      end_key: i8[R] the op that ends.
      arrival_time: f8[X] transfers under way, an event heap.
      arrival_key: i8[X] tensor * D + device.
      copy_time: f8[X] starts of queued transfers, an event heap; their copies are held from then.
      copy_key: i8[X] tensor * D + device.
      log_key: i8[X] transfers in the order in which they were queued: tensor * D + device.
      log_time: f8[X, 3] their start, release and arrival.
      counts: i8[5] ends, arrivals, copies, transfers, bytes transferred.
      wanted_by: i4[D] the last tensor that a device was found to want.
      tail: f8[N] longest path from an op's start to the end; empty where runs are not given up.
      work_left: f8[D] seconds of ops that have not started.
      bound: f8[1] what the makespan is at least.
      before: i4[N] the op that last ended on the op's device when it started, -1 for none.
      last_ended: i4[D] the op that last ended on a device.
      executor: used only where the problem has one.
    """

    tracks_memory: bool
    may_give_up: bool
    logs: bool
    pending: IntArray
    holders: IntArray
    shares: IntArray
    placed: IntArray
    running: IntArray
    memory: LongArray
    peak: LongArray
    channel_free: FloatArray
    ready: LongArray
    ready_row: IntArray
    ready_count: IntArray
    op_start: FloatArray
    op_end: FloatArray
    end_time: FloatArray
    end_key: LongArray
    arrival_time: FloatArray
    arrival_key: LongArray
    copy_time: FloatArray
    copy_key: LongArray
    log_key: LongArray
    log_time: FloatArray
    counts: LongArray
    wanted_by: IntArray
    tail: FloatArray
    work_left: FloatArray
    bound: FloatArray
    before: IntArray
    last_ended: IntArray
    executor: ExecutorScratch


def new_scratch(arrays: SimulationArrays, logs: bool = False) -> Scratch:
    """Scratch for runs that track memory and, where `logs`, keep all transfers for a schedule."""
    return _scratch(arrays, tracks_memory=True, may_give_up=False, logs=logs)


def timing_scratch(arrays: SimulationArrays) -> Scratch:
    """Scratch for runs of which only the time counts and which may be given up at a limit."""
    return _scratch(arrays, tracks_memory=False, may_give_up=True, logs=False)


def _scratch(
    arrays: SimulationArrays, *, tracks_memory: bool, may_give_up: bool, logs: bool
) -> Scratch:
    num_ops, num_devices = arrays.op_seconds.shape
    num_holders = len(arrays.producer) * num_devices if tracks_memory else 0
    num_items = int(arrays.queue_room.sum())
    num_running = min(int(arrays.slots.sum()), num_items)
    num_copies = arrays.most_transfers if tracks_memory else 0
    num_logged = arrays.most_transfers if logs else 0
    return Scratch(
        tracks_memory=tracks_memory,
        may_give_up=may_give_up,
        logs=logs,
        pending=np.zeros(num_ops, dtype=np.int32),
        holders=np.zeros(num_holders, dtype=np.int32),
        shares=arrays.tensor_shares[: num_holders // max(num_devices, 1)].copy(),
        placed=np.empty(num_ops, dtype=np.int32),
        running=np.zeros(num_devices, dtype=np.int32),
        memory=np.zeros(num_devices, dtype=np.int64),
        peak=np.zeros(num_devices, dtype=np.int64),
        channel_free=np.zeros(arrays.num_channels),
        ready=np.empty(num_items, dtype=np.int64),
        ready_row=np.zeros(num_devices, dtype=np.int32),
        ready_count=np.zeros(num_devices, dtype=np.int32),
        op_start=np.empty(num_ops),
        op_end=np.empty(num_ops),
        end_time=np.empty(num_running),
        end_key=np.empty(num_running, dtype=np.int64),
        arrival_time=np.empty(arrays.most_transfers),
        arrival_key=np.empty(arrays.most_transfers, dtype=np.int64),
        copy_time=np.empty(num_copies),
        copy_key=np.empty(num_copies, dtype=np.int64),
        log_key=np.empty(num_logged, dtype=np.int64),
        log_time=np.empty((num_logged, 3)),
        counts=np.zeros(NUM_COUNTS, dtype=np.int64),
        wanted_by=np.full(num_devices, -1, dtype=np.int32),
        tail=np.zeros(num_ops if may_give_up else 0),
        work_left=np.zeros(num_devices),
        bound=np.zeros(1),
        before=np.empty(num_ops, dtype=np.int32),
        last_ended=np.zeros(num_devices, dtype=np.int32),
        executor=_executor_scratch(arrays),
    )


def _executor_scratch(arrays: SimulationArrays) -> ExecutorScratch:
    num_devices = len(arrays.slots)
    most_fresh = 0 if arrays.executor is None else arrays.executor.most_fresh
    return ExecutorScratch(
        order=np.zeros(1, dtype=np.int64),
        owed=np.zeros(num_devices),
        owed_since=np.zeros(num_devices),
        turns=np.zeros((num_devices, 2), dtype=np.int64),
        fresh=np.empty(most_fresh, dtype=np.int64),
    )

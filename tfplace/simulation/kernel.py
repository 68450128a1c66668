"""The contract, section 6, compiled: one placement in, its makespan and peak memory out.

The contract is `tfplace/docs/contract.md`.

The simulation goes from instant to instant. An instant is a set of rounds: the ends, then the
arrivals, then the starts of that instant; a zero-second op started in one round ends in the next.
Where the text leaves room, this is how it is read:

* An arrival that an end of this round causes at this very instant (no bytes, no latency)
  belongs to this round: ends are applied before arrivals.
* Ops that became ready at one instant have equal times whatever their round, so among them the
  op index alone decides.
* Each output is freed for itself: when its own last local user has ended and its own
  transfers have arrived.
* Half-open intervals: usage counts only after everything at its instant is applied, so an
  interval of no length, such as a zero-second op's temp bytes, holds nothing.
* A transfer may be queued: its copy is held from its start, which lies in the future then; such
  starts are instants too.

With Problem.executor, rules 7 to 10 of that section hold as well. A device's queue then is a heap,
too, keyed by turns: negative ones at its front, positive ones at its back. A send is an item of it,
numbered N + tensor * D + target. Of several orders of the ops each is run, and the mean of the
makespans counts.
"""

from __future__ import annotations

import numba
import numpy as np

from graphs.op_graph import FloatArray, IntArray, LongArray
from tfplace.simulation.arrays import Scratch, SimulationArrays, new_scratch
from tfplace.simulation.event_heap import compiled, pop_event, pop_key, push_event, push_key

# Positions in Scratch.counts.
_ENDS, _ARRIVALS, _COPIES, _TRANSFERS, _TRANSFER_BYTES = range(5)

# A ready key is instant * 2**32 + op: the order of (time, op) in one integer; with an executor,
# turn * 2**32 + item.
_INSTANT_SHIFT = 32
_OP_MASK = (1 << _INSTANT_SHIFT) - 1
# Above every op index, so that ops that run inline come after the others, in falling order.
_INLINE_RANK = (1 << 31) - 1


@compiled
def simulate(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, limit: float = np.inf
) -> float:
    """Runs one placement; the peaks are in scratch.peak, all times in scratch.

    Of an executor's several orders these are of the first.

    Args:
      arrays: the problem.
      scratch: with holders, memory is tracked; without, only time is, in half the time.
      device_of_op: i4[N].
      limit: seconds; a run that can't end by then may be given up. Only without holders, which a
        run that is given up would leave behind.

    Returns:
      The makespan in seconds, the mean over the orders; inf where an op has no kernel on its
      device, and then the peaks are the persistent bytes; inf where the run was given up.
    """
    num_orders = arrays.sizes[3]
    total = 0.0
    for order in range(num_orders - 1, -1, -1):
        scratch.first[0] = order * len(arrays.input_tensor)
        scratch.first[1] = order * len(device_of_op)
        left = limit
        if limit < np.inf:
            least = _least_makespan(arrays, scratch, device_of_op)  # whatever the order
            left = limit * num_orders - total - order * least
            if least > left:
                return np.inf
        total += _simulate(arrays, scratch, device_of_op, order, left)
        if total == np.inf:
            return np.inf
    return total / num_orders


@compiled
def _simulate(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, order: int, limit: float
) -> float:
    """A run under one order; with a limit after `_least_makespan`."""
    if not _reset(arrays, scratch, device_of_op):
        return np.inf
    counts = scratch.counts
    num_devices = len(arrays.slots)
    makespan = 0.0
    now = 0.0
    instant = 0
    num_sources = len(arrays.sources) // arrays.sizes[3]
    for index in range(order * num_sources, (order + 1) * num_sources):
        op = arrays.sources[index]
        _make_ready(arrays, scratch, device_of_op[op], op, instant)
    while True:
        while counts[_COPIES] > 0 and scratch.copy_time[0] == now:
            key = scratch.copy_key[0]
            counts[_COPIES] = pop_event(scratch.copy_time, scratch.copy_key, counts[_COPIES])
            scratch.memory[key % num_devices] += arrays.tensor_bytes[key // num_devices]
        while True:
            while counts[_ENDS] > 0 and scratch.end_time[0] == now:
                op = scratch.end_key[0]
                counts[_ENDS] = pop_event(scratch.end_time, scratch.end_key, counts[_ENDS])
                if op >= len(device_of_op):
                    _end_send(arrays, scratch, device_of_op, op - len(device_of_op), now)
                    continue
                makespan = now
                _end(arrays, scratch, device_of_op, op, now, instant)
            while counts[_ARRIVALS] > 0 and scratch.arrival_time[0] == now:
                key = scratch.arrival_key[0]
                counts[_ARRIVALS] = pop_event(
                    scratch.arrival_time, scratch.arrival_key, counts[_ARRIVALS]
                )
                _arrive(arrays, scratch, device_of_op, key, now, instant)
            for device in range(num_devices):
                if scratch.ready_count[device] > 0:
                    _start_ready(arrays, scratch, device, now)
            if counts[_ENDS] == 0 or scratch.end_time[0] != now:
                break
        if limit < np.inf and scratch.bound[0] > limit:
            return np.inf
        for device in range(num_devices):
            if scratch.memory[device] > scratch.peak[device]:
                scratch.peak[device] = scratch.memory[device]
        if counts[_ENDS] == 0 and counts[_ARRIVALS] == 0:
            return makespan
        now = np.inf
        if counts[_ENDS] > 0:
            now = scratch.end_time[0]
        if counts[_ARRIVALS] > 0:
            now = min(now, scratch.arrival_time[0])
        if counts[_COPIES] > 0:
            now = min(now, scratch.copy_time[0])
        instant += 1


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _reset(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray) -> bool:
    """Prepares scratch; returns whether every op has a kernel."""
    for device in range(len(arrays.slots)):
        scratch.memory[device] = 0
        scratch.running[device] = 0
        scratch.ready_count[device] = 0
        scratch.wanted_by[device] = -1
        scratch.last_ended[device] = -1
        scratch.owed[device] = 0.0
        scratch.owed_since[device] = 0.0
        scratch.turns[device, 0] = 0
        scratch.turns[device, 1] = 0
    for channel in range(len(scratch.channel_free)):
        scratch.channel_free[channel] = 0.0
    for kind in range(len(scratch.counts)):
        scratch.counts[kind] = 0
    for op in range(len(device_of_op)):
        scratch.pending[op] = arrays.num_inputs[op]
    runnable = True
    for op in range(len(device_of_op)):
        device = device_of_op[op]
        scratch.memory[device] += arrays.persistent_bytes[op]
        scratch.ready_count[device] += 1
        if len(arrays.most_sends) > 0:
            scratch.ready_count[device] += arrays.most_sends[op]
        if arrays.op_seconds[op, device] == np.inf:
            runnable = False
    row = 0
    for device in range(len(arrays.slots)):
        scratch.ready_row[device] = row
        row += scratch.ready_count[device]
        scratch.ready_count[device] = 0
        scratch.peak[device] = scratch.memory[device]
    return runnable


@compiled
def _make_ready(
    arrays: SimulationArrays, scratch: Scratch, device: int, op: int, instant: int
) -> None:
    """Queues an op on its device; with an executor at the back of the queue."""
    turn = instant
    if len(arrays.most_sends) > 0:
        scratch.turns[device, 1] += 1
        turn = scratch.turns[device, 1]
    _queue(scratch, device, turn, op)


@compiled
def _queue(scratch: Scratch, device: int, turn: int, item: int) -> None:
    key = (np.int64(turn) << _INSTANT_SHIFT) | item
    scratch.ready_count[device] = push_key(
        scratch.ready, scratch.ready_row[device], scratch.ready_count[device], key
    )


@compiled
def _start_ready(arrays: SimulationArrays, scratch: Scratch, device: int, now: float) -> None:
    """Starts ready ops in their order while the device has a free slot."""
    counts = scratch.counts
    row = scratch.ready_row[device]
    while scratch.ready_count[device] > 0 and scratch.running[device] < arrays.slots[device]:
        op = scratch.ready[row] & _OP_MASK
        scratch.ready_count[device] = pop_key(scratch.ready, row, scratch.ready_count[device])
        _settle(scratch, device, now)
        scratch.running[device] += 1
        if op >= len(arrays.op_seconds):
            _start_send(arrays, scratch, device, op, now)
            continue
        scratch.memory[device] += arrays.start_bytes[op]
        seconds = arrays.op_seconds[op, device]
        if len(arrays.op_slowdown) > 0:
            seconds *= 1.0 + arrays.op_slowdown[op, device] * _num_busy(arrays, scratch, device)
        end = now + (seconds + scratch.owed[device])
        scratch.owed[device] = 0.0
        scratch.op_start[op] = now
        scratch.before[op] = scratch.last_ended[device]
        scratch.op_end[op] = end
        counts[_ENDS] = push_event(scratch.end_time, scratch.end_key, counts[_ENDS], end, op)
        if len(scratch.tail) > 0:
            # The run takes at least until the longest path from here, or the rest of the
            # device's work, is done.
            left = max(scratch.tail[op], scratch.work_left[device] / arrays.slots[device])
            scratch.bound[0] = max(scratch.bound[0], now + left)
            scratch.work_left[device] -= arrays.op_seconds[op, device]


@compiled
def _end(
    arrays: SimulationArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    op: int,
    now: float,
    instant: int,
) -> None:
    """Ends an op: frees what it used last, hands its tensors to local users, sends the others."""
    device = device_of_op[op]
    scratch.running[device] -= 1
    scratch.owed_since[device] = now
    scratch.last_ended[device] = op
    scratch.memory[device] -= arrays.end_bytes[op]
    tracks = len(scratch.holders) > 0
    num_fresh = 0
    has_executor = len(arrays.most_sends) > 0
    if tracks:
        for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
            _let_go(arrays, scratch, device_of_op, arrays.input_tensor[index], device)
    num_devices = len(arrays.slots)
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        first = tensor * num_devices
        remote = False
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            user = arrays.use_op[scratch.first[0] + index]
            where = device_of_op[user]
            if tracks:
                scratch.holders[first + where] += 1
            if where != device:
                remote = True
                if has_executor and scratch.wanted_by[where] != tensor:
                    item = len(arrays.op_seconds) + first + where
                    key = _fresh_key(arrays.op_turn[scratch.first[1] + user], item)
                    num_fresh = push_key(scratch.fresh, 0, num_fresh, key)
                scratch.wanted_by[where] = tensor
                continue
            scratch.pending[user] -= 1
            if scratch.pending[user] == 0 and has_executor:
                rank = arrays.op_turn[scratch.first[1] + user]
                if arrays.runs_inline[user]:
                    rank = _INLINE_RANK - rank
                num_fresh = push_key(scratch.fresh, 0, num_fresh, _fresh_key(rank, user))
            elif scratch.pending[user] == 0:
                _make_ready(arrays, scratch, device, user, instant)
        if remote:
            for target in range(num_devices):
                if scratch.wanted_by[target] == tensor:
                    if tracks:
                        scratch.holders[first + device] += 1
                    if not has_executor:
                        _send(arrays, scratch, device, target, tensor, now)
    while num_fresh > 0:
        item = scratch.fresh[0] & _OP_MASK
        num_fresh = pop_key(scratch.fresh, 0, num_fresh)
        scratch.turns[device, 0] -= 1
        _queue(scratch, device, scratch.turns[device, 0], item)


@compiled
def _fresh_key(rank: int, item: int) -> int:
    """Ascending keys go to the front of the queue one after another: the last one runs first."""
    return int((np.int64(rank) << _INSTANT_SHIFT) | item)


@compiled
def _settle(scratch: Scratch, device: int, now: float) -> None:
    """A device on which nothing runs works off what received tensors owe it."""
    if scratch.running[device] == 0:
        done = now - scratch.owed_since[device]
        scratch.owed[device] = max(scratch.owed[device] - done, 0.0)
        scratch.owed_since[device] = now


@compiled
def _num_busy(arrays: SimulationArrays, scratch: Scratch, device: int) -> int:
    """How many of the devices that share this one's memory run anything."""
    busy = 0
    for other in range(len(arrays.slots)):
        if arrays.shares_memory[device, other] and scratch.running[other] > 0:
            busy += 1
    return busy


@compiled
def _start_send(
    arrays: SimulationArrays, scratch: Scratch, device: int, item: int, now: float
) -> None:
    """A transfer's work at its sender, which takes a slot as an op does."""
    counts = scratch.counts
    key = item - len(arrays.op_seconds)
    tensor = key // len(arrays.slots)
    target = key % len(arrays.slots)
    seconds = (
        arrays.send_seconds[device, target, 0]
        + arrays.tensor_bytes[tensor] * arrays.send_seconds[device, target, 1]
    )
    end = now + (seconds + scratch.owed[device])
    scratch.owed[device] = 0.0
    counts[_ENDS] = push_event(scratch.end_time, scratch.end_key, counts[_ENDS], end, item)


@compiled
def _end_send(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, key: int, now: float
) -> None:
    """The sender has done its part: the tensor goes its way."""
    tensor = key // len(arrays.slots)
    source = device_of_op[arrays.producer[tensor]]
    scratch.running[source] -= 1
    scratch.owed_since[source] = now
    _send(arrays, scratch, source, key % len(arrays.slots), tensor, now)


@compiled
def _let_go(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, tensor: int, device: int
) -> None:
    """One holder less of a tensor on a device; the last one frees it."""
    position = tensor * len(arrays.slots) + device
    scratch.holders[position] -= 1
    if scratch.holders[position] == 0:
        if device_of_op[arrays.producer[tensor]] == device:
            scratch.memory[device] -= arrays.tensor_alloc_bytes[tensor]
        else:
            scratch.memory[device] -= arrays.tensor_bytes[tensor]


@compiled
def _send(
    arrays: SimulationArrays, scratch: Scratch, source: int, target: int, tensor: int, now: float
) -> None:
    """Queues the transfer of a tensor; rule 3's arithmetic in its association."""
    counts = scratch.counts
    start = now
    for end in range(2):
        channel = arrays.channels[source, target, end]
        if channel >= 0:
            start = max(start, scratch.channel_free[channel])
    release = start + arrays.tensor_bytes[tensor] / arrays.bandwidth[source, target]
    arrival = release + arrays.latency[source, target]
    for end in range(2):
        channel = arrays.channels[source, target, end]
        if channel >= 0:
            scratch.channel_free[channel] = release
    key = tensor * len(arrays.slots) + target
    counts[_ARRIVALS] = push_event(
        scratch.arrival_time, scratch.arrival_key, counts[_ARRIVALS], arrival, key
    )
    if len(scratch.holders) == 0:
        pass
    elif start > now:
        counts[_COPIES] = push_event(
            scratch.copy_time, scratch.copy_key, counts[_COPIES], start, key
        )
    else:
        scratch.memory[target] += arrays.tensor_bytes[tensor]
    if len(scratch.log_key) > 0:
        number = counts[_TRANSFERS]
        scratch.log_key[number] = key
        scratch.log_time[number, 0] = start
        scratch.log_time[number, 1] = release
        scratch.log_time[number, 2] = arrival
    counts[_TRANSFERS] += 1
    counts[_TRANSFER_BYTES] += arrays.tensor_bytes[tensor]


@compiled
def _arrive(
    arrays: SimulationArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    key: int,
    now: float,
    instant: int,
) -> None:
    """A copy is there: its users on that device have one input more, its producer may free it."""
    num_devices = len(arrays.slots)
    tensor = key // num_devices
    device = key % num_devices
    if len(arrays.most_sends) > 0:
        source = device_of_op[arrays.producer[tensor]]
        _settle(scratch, device, now)
        scratch.owed[device] += (
            arrays.receive_seconds[source, device, 0]
            + arrays.tensor_bytes[tensor] * arrays.receive_seconds[source, device, 1]
        )
    for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
        user = arrays.use_op[scratch.first[0] + index]
        if device_of_op[user] == device:
            scratch.pending[user] -= 1
            if scratch.pending[user] == 0:
                _make_ready(arrays, scratch, device, user, instant)
    if len(scratch.holders) > 0:
        _let_go(arrays, scratch, device_of_op, tensor, device_of_op[arrays.producer[tensor]])


@compiled
def _least_makespan(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray) -> float:
    """Seconds that a placement takes at least, by its longest path and its fullest device.

    Fills scratch.tail, the longest path from an op's start to the end with the moves between
    devices, which wait for no channel, and scratch.work_left.
    """
    for device in range(len(arrays.slots)):
        scratch.work_left[device] = 0.0
    longest = 0.0
    for op in range(len(device_of_op) - 1, -1, -1):
        device = device_of_op[op]
        after = 0.0
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
                user = arrays.use_op[index]
                where = device_of_op[user]
                rest = scratch.tail[user]
                if where != device:
                    rest += (
                        arrays.tensor_bytes[tensor] / arrays.bandwidth[device, where]
                        + arrays.latency[device, where]
                    )
                after = max(after, rest)
        seconds = arrays.op_seconds[op, device]
        scratch.work_left[device] += seconds
        scratch.tail[op] = seconds + after
        longest = max(longest, scratch.tail[op])
    for device in range(len(arrays.slots)):
        longest = max(longest, scratch.work_left[device] / arrays.slots[device])
    scratch.bound[0] = longest
    return longest


@numba.njit(cache=True, nogil=True, error_model="numpy")
def simulate_batch(
    arrays: SimulationArrays, device_of_op: IntArray, makespans: FloatArray, peaks: LongArray
) -> None:
    """Runs placements i4[B, N] into makespans f8[B] and peaks i8[B, D]."""
    scratch = new_scratch(arrays, 0)
    for row in range(len(device_of_op)):
        makespans[row] = simulate(arrays, scratch, device_of_op[row])
        peaks[row] = scratch.peak

"""Rules 1 to 6 of the contract, section 6, compiled; each stands beside its number.

A run goes from instant to instant. An instant is a set of rounds: the ends, then the arrivals, then
the starts of that instant; a zero-second op that is started in one round ends in the next. Where
the rules leave room, the contract says below them how they are read.
"""

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import IntArray
from tfplace.simulation.arrays import SimulationArrays
from tfplace.simulation.event_heap import pop_event, pop_key, push_event, push_key
from tfplace.simulation.scratch import ARRIVALS, COPIES, ENDS, TRANSFER_BYTES, TRANSFERS, Scratch

# A key in a device's heap of ready items is turn * 2**32 + item. Under rule 1 the item is an op and
# the turn is the number of the instant at which it became ready: (time, op index) in one integer.
TURN_SHIFT = 32
ITEM_MASK = (1 << TURN_SHIFT) - 1


@compiled_part
def run(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, limit: float) -> float:
    """Runs one placement; all times and peaks are in scratch.

    Args:
      scratch: after `reset`, and after `least_makespan` where there is a limit.
      device_of_op: i4[N].
      limit: seconds; a run that can't end by then is given up.

    Returns:
      The makespan in seconds; inf for a run that was given up.
    """
    counts = scratch.counts
    now, instant, makespan = 0.0, 0, 0.0
    for index in range(len(arrays.sources)):
        op = arrays.sources[index]
        make_ready(scratch, device_of_op[op], _turn(arrays, op, instant), op)
    while True:
        hold_started_copies(arrays, scratch, now)
        while True:
            # Rule 4: all that happens at one instant (ends by op index, then arrivals by tensor
            # index and device index) is applied before any op starts at that instant.
            while counts[ENDS] > 0 and scratch.end_time[0] == now:
                op = scratch.end_key[0]
                counts[ENDS] = pop_event(scratch.end_time, scratch.end_key, counts[ENDS])
                _end(arrays, scratch, device_of_op, op, now, instant)
                makespan = now  # Rule 5: the makespan is the last op's end.
            while counts[ARRIVALS] > 0 and scratch.arrival_time[0] == now:
                key = scratch.arrival_key[0]
                counts[ARRIVALS] = pop_event(
                    scratch.arrival_time, scratch.arrival_key, counts[ARRIVALS]
                )
                _arrive(arrays, scratch, device_of_op, key, instant)
            # Rule 4: devices then start ops in device order.
            for device in range(len(arrays.slots)):
                if scratch.ready_count[device] > 0:
                    _start_ready(arrays, scratch, device, now)
            # Rule 4: what ends at the same instant (0-second ops) is the next round of it.
            if counts[ENDS] == 0 or scratch.end_time[0] != now:
                break
        if limit < np.inf and scratch.bound[0] > limit:
            return np.inf
        note_peaks(scratch)
        if counts[ENDS] == 0 and counts[ARRIVALS] == 0:
            return makespan
        now = next_instant(scratch)
        instant += 1


@compiled_part
def reset(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray) -> bool:
    """Prepares scratch for a run; returns whether every op has a kernel where it lies."""
    for device in range(len(arrays.slots)):
        scratch.memory[device] = 0
        scratch.running[device] = 0
        scratch.ready_count[device] = 0
        scratch.wanted_by[device] = -1
        scratch.last_ended[device] = -1
    for channel in range(len(scratch.channel_free)):
        scratch.channel_free[channel] = 0.0
    for kind in range(len(scratch.counts)):
        scratch.counts[kind] = 0
    for op in range(len(device_of_op)):
        scratch.pending[op] = arrays.num_inputs[op]
    if scratch.tracks_memory:
        for tensor in arrays.kept:
            for device in range(len(arrays.slots)):
                scratch.holders[tensor * len(arrays.slots) + device] = 0
    runnable = True
    for op in range(len(device_of_op)):
        device = device_of_op[op]
        scratch.placed[op] = device
        scratch.memory[device] += arrays.persistent_bytes[op]  # Rule 6: persistent bytes always.
        scratch.ready_count[device] += arrays.queue_room[op]
        if arrays.op_seconds[op, device] == np.inf:
            runnable = False
    row = 0
    for device in range(len(arrays.slots)):
        scratch.ready_row[device] = row
        row += scratch.ready_count[device]
        scratch.ready_count[device] = 0
        scratch.peak[device] = scratch.memory[device]
    return runnable


@compiled_part
def make_ready(scratch: Scratch, device: int, turn: int, item: int) -> None:
    """Puts an item among what is ready on a device; the least (turn, item) starts first."""
    key = int((np.int64(turn) << TURN_SHIFT) | item)
    scratch.ready_count[device] = push_key(
        scratch.ready, scratch.ready_row[device], scratch.ready_count[device], key
    )


@compiled_part
def take_ready(scratch: Scratch, device: int) -> int:
    """Takes the item out that starts next on a device, which has one."""
    row = scratch.ready_row[device]
    item = scratch.ready[row] & ITEM_MASK
    scratch.ready_count[device] = pop_key(scratch.ready, row, scratch.ready_count[device])
    return item


@compiled_part
def _turn(arrays: SimulationArrays, op: int, instant: int) -> int:
    """Rule 1's turn of an op that becomes ready: the instant; its rank where ops have one."""
    return instant if len(arrays.start_rank) == 0 else arrays.start_rank[op]


@compiled_part
def _start_ready(arrays: SimulationArrays, scratch: Scratch, device: int, now: float) -> None:
    # Rule 1: a device runs at most `slots` ops at once. Ready ops start in the order (time they
    # became ready, op index).
    while scratch.ready_count[device] > 0 and scratch.running[device] < arrays.slots[device]:
        op = take_ready(scratch, device)
        # Rule 2: an op started at s ends at s + op_seconds[op, device].
        start(arrays, scratch, device, op, now, now + arrays.op_seconds[op, device])


@compiled_part
def start(
    arrays: SimulationArrays, scratch: Scratch, device: int, op: int, now: float, end: float
) -> None:
    """Starts an op, whose end is known."""
    counts = scratch.counts
    scratch.running[device] += 1
    # Rule 6: an op's outputs from its start; temp bytes while the op runs.
    scratch.memory[device] += arrays.start_bytes[op]
    if scratch.tracks_memory and arrays.may_take[op]:
        _take_over(arrays, scratch, device, op)
    scratch.op_start[op] = now
    scratch.op_end[op] = end
    scratch.before[op] = scratch.last_ended[device]
    counts[ENDS] = push_event(scratch.end_time, scratch.end_key, counts[ENDS], end, op)
    if scratch.may_give_up:
        # The run takes at least until the longest path from here, or the rest of the device's
        # work, is done.
        left = max(scratch.tail[op], scratch.work_left[device] / arrays.slots[device])
        scratch.bound[0] = max(scratch.bound[0], now + left)
        scratch.work_left[device] -= arrays.op_seconds[op, device]


@compiled_part
def _take_over(arrays: SimulationArrays, scratch: Scratch, device: int, op: int) -> None:
    """Rule 6: outputs of an op that starts take over buffers that nothing else needs."""
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        source, needed = arrays.tensor_shares[tensor], False
        if not arrays.takes_over[tensor]:
            continue
        for other in range(arrays.tensor_row[op], tensor):
            needed = needed or scratch.shares[other] == source
        while not needed:
            # The op's own use is the only one that holds it; so on with whose buffer it is.
            needed = scratch.holders[source * len(arrays.slots) + device] != 1
            if scratch.placed[arrays.producer[source]] != device:
                break  # a received copy
            if scratch.shares[source] < 0:
                # What lies in a variable or a constant stays there.
                needed = needed or arrays.tensor_alloc_bytes[source] == 0
                break
            source = scratch.shares[source]
        scratch.shares[tensor] = -1
        if not needed:
            scratch.shares[tensor] = arrays.tensor_shares[tensor]
            scratch.memory[device] -= arrays.tensor_alloc_bytes[tensor]


@compiled_part
def _end(
    arrays: SimulationArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    op: int,
    now: float,
    instant: int,
) -> None:
    device = device_of_op[op]
    free_ended(arrays, scratch, device_of_op, op)
    num_devices = len(arrays.slots)
    # Rule 3: at the end of an op, for each of its tensors in index order ...
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        leaves = False
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            user = arrays.use_op[index]
            where = device_of_op[user]
            if scratch.tracks_memory:
                scratch.holders[tensor * num_devices + where] += 1
            if where != device:
                scratch.wanted_by[where] = tensor
                leaves = True
                continue
            # Rule 3: users on the same device have it at once.
            scratch.pending[user] -= 1
            if scratch.pending[user] == 0:
                make_ready(scratch, device, _turn(arrays, user, instant), user)
        if leaves:
            # Rule 3: ... and each other device that holds a user of it, in device order: one
            # transfer, however many users.
            for target in range(num_devices):
                if scratch.wanted_by[target] == tensor:
                    if scratch.tracks_memory:
                        scratch.holders[tensor * num_devices + device] += 1
                    transfer(arrays, scratch, device, target, tensor, now)


@compiled_part
def free_ended(arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, op: int) -> None:
    """Frees an ended op's slot, and what of its device's memory nothing needs any more."""
    device = device_of_op[op]
    scratch.running[device] -= 1
    scratch.last_ended[device] = op
    # Rule 6: temp bytes while the op runs; an unused output until the op ends.
    scratch.memory[device] -= arrays.end_bytes[op]
    if scratch.tracks_memory:
        for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
            if scratch.shares[tensor] >= 0:
                scratch.holders[scratch.shares[tensor] * len(arrays.slots) + device] += 1
        for index in range(arrays.input_row[op], arrays.input_row[op + 1]):
            let_go(arrays, scratch, device_of_op, arrays.input_tensor[index], device)


@compiled_part
def let_go(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, tensor: int, device: int
) -> None:
    """One holder less of a tensor on a device; the last one frees it."""
    while tensor >= 0:
        position = tensor * len(arrays.slots) + device
        scratch.holders[position] -= 1
        if scratch.holders[position] > 0:
            return
        if device_of_op[arrays.producer[tensor]] != device:
            # Rule 6: a received copy (tensor bytes) until its last user there has ended.
            scratch.memory[device] -= arrays.tensor_bytes[tensor]
            return
        # Rule 6: an op's outputs (alloc bytes) until the last user on its own device has ended
        # and all their transfers have arrived; then what it shares a buffer with has one less.
        shared = scratch.shares[tensor]
        if shared < 0 or not arrays.takes_over[tensor]:
            scratch.memory[device] -= arrays.tensor_alloc_bytes[tensor]
        tensor = shared


@compiled_part
def transfer(
    arrays: SimulationArrays, scratch: Scratch, source: int, target: int, tensor: int, now: float
) -> None:
    """Sends a tensor on its way, which may begin later; all arithmetic in rule 3's association."""
    counts = scratch.counts
    # Rule 3: it starts at max(now, free time of each of the link's channels), ...
    start = now
    for end in range(2):
        channel = arrays.channels[source, target, end]
        if channel >= 0:
            start = max(start, scratch.channel_free[channel])
    # ... holds these channels until start + bytes/bandwidth, ...
    release = start + arrays.tensor_bytes[tensor] / arrays.bandwidth[source, target]
    for end in range(2):
        channel = arrays.channels[source, target, end]
        if channel >= 0:
            scratch.channel_free[channel] = release
    # ... and the tensor is there `latency` after that. Zero-byte tensors queue like any other.
    arrival = release + arrays.latency[source, target]
    key = tensor * len(arrays.slots) + target
    counts[ARRIVALS] = push_event(
        scratch.arrival_time, scratch.arrival_key, counts[ARRIVALS], arrival, key
    )
    if scratch.tracks_memory:
        # Rule 6: a received copy from its transfer's start.
        if start > now:
            counts[COPIES] = push_event(
                scratch.copy_time, scratch.copy_key, counts[COPIES], start, key
            )
        else:
            scratch.memory[target] += arrays.tensor_bytes[tensor]
    if scratch.logs:
        number = counts[TRANSFERS]
        scratch.log_key[number] = key
        scratch.log_time[number, 0] = start
        scratch.log_time[number, 1] = release
        scratch.log_time[number, 2] = arrival
    counts[TRANSFERS] += 1
    counts[TRANSFER_BYTES] += arrays.tensor_bytes[tensor]


@compiled_part
def _arrive(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, key: int, instant: int
) -> None:
    """A copy is there: its users on that device have one input more, its producer may free it."""
    tensor = key // len(arrays.slots)
    device = key % len(arrays.slots)
    for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
        user = arrays.use_op[index]
        if device_of_op[user] == device:
            scratch.pending[user] -= 1
            # Rule 1: an op is ready on its device when every tensor it uses is there.
            if scratch.pending[user] == 0:
                make_ready(scratch, device, _turn(arrays, user, instant), user)
    if scratch.tracks_memory:
        let_go(arrays, scratch, device_of_op, tensor, device_of_op[arrays.producer[tensor]])


@compiled_part
def hold_started_copies(arrays: SimulationArrays, scratch: Scratch, now: float) -> None:
    """Rule 6: a received copy is held from its transfer's start, for those that were queued."""
    counts = scratch.counts
    while counts[COPIES] > 0 and scratch.copy_time[0] == now:
        key = scratch.copy_key[0]
        counts[COPIES] = pop_event(scratch.copy_time, scratch.copy_key, counts[COPIES])
        scratch.memory[key % len(arrays.slots)] += arrays.tensor_bytes[key // len(arrays.slots)]


@compiled_part
def note_peaks(scratch: Scratch) -> None:
    """Rule 6: intervals are half-open, so memory counts once all of an instant is applied."""
    for device in range(len(scratch.peak)):
        if scratch.memory[device] > scratch.peak[device]:
            scratch.peak[device] = scratch.memory[device]


@compiled_part
def next_instant(scratch: Scratch) -> float:
    """When something happens next."""
    counts = scratch.counts
    now = np.inf
    if counts[ENDS] > 0:
        now = scratch.end_time[0]
    if counts[ARRIVALS] > 0:
        now = min(now, scratch.arrival_time[0])
    if counts[COPIES] > 0:
        now = min(now, scratch.copy_time[0])
    return now

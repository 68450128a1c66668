"""Rules 7 to 10 of the contract, section 6, compiled; each stands beside its number.

They hold where a problem has an executor, together with rules 2 to 6, whose pieces are those of
`rules_1_to_6`. Rule 9 is arithmetic on the links and done when a problem is laid out (`wires`).

A device's queue is the same heap of ready items: turns below 0 stand at its front, turns above 0 at
its back. A send is an item of it, too, numbered N + tensor * D + target.
"""

import numpy as np

from graphs.host.compiled import compiled_part
from graphs.op_graph import IntArray
from tfplace.simulation.arrays import ExecutorArrays, SimulationArrays
from tfplace.simulation.event_heap import pop_event, pop_key, push_event, push_key
from tfplace.simulation.rules_1_to_6 import (
    ITEM_MASK,
    TURN_SHIFT,
    free_ended,
    hold_started_copies,
    let_go,
    make_ready,
    next_instant,
    note_peaks,
    start,
    take_ready,
    transfer,
)
from tfplace.simulation.scratch import ARRIVALS, ENDS, Scratch

# Columns of ExecutorScratch.turns.
_FRONT, _BACK = range(2)

# Above every op index, so that ops that run inline come after the others, in falling order; sends
# that go first come after these.
_INLINE_RANK = 1 << 30


@compiled_part
def run_with_executor(
    arrays: SimulationArrays,
    executor: ExecutorArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    limit: float,
) -> float:
    """As `run` of rules 1 to 6, under the executor's order that scratch names."""
    counts = scratch.counts
    _reset_executor(scratch)
    # Rule 7: at 0 the ops without inputs stand in the queue in index order.
    for index in range(executor.sources.shape[1]):
        op = executor.sources[scratch.executor.order[0], index]
        _queue_at_back(scratch, device_of_op[op], op)
    now, makespan = 0.0, 0.0
    while True:
        hold_started_copies(arrays, scratch, now)
        while True:
            # Rule 8: sends that end at one instant are applied after the ops, by tensor index and
            # device index. Their numbers are above those of all ops.
            while counts[ENDS] > 0 and scratch.end_time[0] == now:
                item = scratch.end_key[0]
                counts[ENDS] = pop_event(scratch.end_time, scratch.end_key, counts[ENDS])
                if item < len(device_of_op):
                    _end(arrays, executor, scratch, device_of_op, item, now)
                    makespan = now
                else:
                    _end_send(arrays, scratch, device_of_op, item - len(device_of_op), now)
            while counts[ARRIVALS] > 0 and scratch.arrival_time[0] == now:
                key = scratch.arrival_key[0]
                counts[ARRIVALS] = pop_event(
                    scratch.arrival_time, scratch.arrival_key, counts[ARRIVALS]
                )
                _arrive(arrays, executor, scratch, device_of_op, key, now)
            for device in range(len(arrays.slots)):
                if scratch.ready_count[device] > 0:
                    _start_queued(arrays, executor, scratch, device, now)
            if counts[ENDS] == 0 or scratch.end_time[0] != now:
                break
        if limit < np.inf and scratch.bound[0] > limit:
            return np.inf
        note_peaks(scratch)
        if counts[ENDS] == 0 and counts[ARRIVALS] == 0:
            return makespan
        now = next_instant(scratch)


@compiled_part
def _reset_executor(scratch: Scratch) -> None:
    for device in range(len(scratch.running)):
        scratch.executor.owed[device] = 0.0
        scratch.executor.owed_since[device] = 0.0
        scratch.executor.turns[device, _FRONT] = 0
        scratch.executor.turns[device, _BACK] = 0


@compiled_part
def _queue_at_back(scratch: Scratch, device: int, item: int) -> None:
    scratch.executor.turns[device, _BACK] += 1
    make_ready(scratch, device, scratch.executor.turns[device, _BACK], item)


@compiled_part
def _queue_at_front(scratch: Scratch, device: int, item: int) -> None:
    scratch.executor.turns[device, _FRONT] -= 1
    make_ready(scratch, device, scratch.executor.turns[device, _FRONT], item)


@compiled_part
def _start_queued(
    arrays: SimulationArrays, executor: ExecutorArrays, scratch: Scratch, device: int, now: float
) -> None:
    owed = scratch.executor.owed
    while scratch.ready_count[device] > 0 and scratch.running[device] < arrays.slots[device]:
        # Rule 7: what starts is taken from the queue's front.
        item = take_ready(scratch, device)
        _work_off(scratch, device, now)
        if item < len(arrays.op_seconds):
            # Rules 8 and 10: an op that starts at s ends at s + (seconds * (1 + op_slowdown[op, d]
            # / k * b) + owed), and nothing is owed any more. The arrays hold op_slowdown / k.
            seconds = arrays.op_seconds[item, device]
            if len(executor.op_slowdown) > 0:
                slowdown = executor.op_slowdown[item, device]
                seconds *= 1.0 + slowdown * _num_busy_sharers(arrays, executor, scratch, device)
            start(arrays, scratch, device, item, now, now + (seconds + owed[device]))
        else:
            _start_send(arrays, executor, scratch, device, item, now)
        owed[device] = 0.0


@compiled_part
def _num_busy_sharers(
    arrays: SimulationArrays, executor: ExecutorArrays, scratch: Scratch, device: int
) -> int:
    """Rule 10: how many of the devices that share this one's memory run an op or a send."""
    busy = 0
    for other in range(len(arrays.slots)):
        if executor.shares_memory[device, other] and scratch.running[other] > 0:
            busy += 1
    return busy


@compiled_part
def _start_send(
    arrays: SimulationArrays,
    executor: ExecutorArrays,
    scratch: Scratch,
    device: int,
    item: int,
    now: float,
) -> None:
    """Rule 8: a send takes a slot for send_seconds[d, e, 0] + bytes * send_seconds[d, e, 1]."""
    counts = scratch.counts
    key = item - len(arrays.op_seconds)
    tensor = key // len(arrays.slots)
    target = key % len(arrays.slots)
    seconds = (
        executor.send_seconds[device, target, 0]
        + arrays.tensor_bytes[tensor] * executor.send_seconds[device, target, 1]
    )
    scratch.running[device] += 1
    end = now + (seconds + scratch.executor.owed[device])
    counts[ENDS] = push_event(scratch.end_time, scratch.end_key, counts[ENDS], end, item)


@compiled_part
def _end_send(
    arrays: SimulationArrays, scratch: Scratch, device_of_op: IntArray, key: int, now: float
) -> None:
    """Rule 8: at a send's end the transfer of rule 3 is made."""
    tensor = key // len(arrays.slots)
    source = device_of_op[arrays.producer[tensor]]
    scratch.running[source] -= 1
    scratch.executor.owed_since[source] = now
    transfer(arrays, scratch, source, key % len(arrays.slots), tensor, now)


@compiled_part
def _end(
    arrays: SimulationArrays,
    executor: ExecutorArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    op: int,
    now: float,
) -> None:
    """Rule 7: at an op's end, what that makes ready goes to the front of its device's queue."""
    device = device_of_op[op]
    scratch.executor.owed_since[device] = now
    free_ended(arrays, scratch, device_of_op, op)
    order = scratch.executor.order[0]
    num_devices = len(arrays.slots)
    num_fresh = 0
    for tensor in range(arrays.tensor_row[op], arrays.tensor_row[op + 1]):
        first = tensor * num_devices
        for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
            user = executor.use_op[order, index]
            where = device_of_op[user]
            if scratch.tracks_memory:
                scratch.holders[first + where] += 1
            if where != device:
                # Rule 7: one send for each tensor and other device that has a user of it, which
                # counts as its lowest user there: users come by turn, so that is the first.
                if scratch.wanted_by[where] != tensor:
                    scratch.wanted_by[where] = tensor
                    if scratch.tracks_memory:
                        scratch.holders[first + device] += 1
                    item = len(arrays.op_seconds) + first + where
                    rank = executor.op_turn[order, user]
                    if executor.sends_first[device]:
                        rank += _INLINE_RANK + 1
                    num_fresh = _add_fresh(scratch, num_fresh, rank, item)
                continue
            scratch.pending[user] -= 1
            if scratch.pending[user] == 0:
                # Rule 7: sends come first where they go first; then users that run inline, in index
                # order; then the others and sends in falling order of index (of equals, those of
                # later tensors first).
                rank = executor.op_turn[order, user]
                if executor.runs_inline[user]:
                    rank = _INLINE_RANK - rank
                num_fresh = _add_fresh(scratch, num_fresh, rank, user)
    # What goes to the front last runs first, so they go there in ascending order.
    while num_fresh > 0:
        item = scratch.executor.fresh[0] & ITEM_MASK
        num_fresh = pop_key(scratch.executor.fresh, 0, num_fresh)
        _queue_at_front(scratch, device, item)


@compiled_part
def _add_fresh(scratch: Scratch, num_fresh: int, rank: int, item: int) -> int:
    key = int((np.int64(rank) << TURN_SHIFT) | item)
    return push_key(scratch.executor.fresh, 0, num_fresh, key)


@compiled_part
def _arrive(
    arrays: SimulationArrays,
    executor: ExecutorArrays,
    scratch: Scratch,
    device_of_op: IntArray,
    key: int,
    now: float,
) -> None:
    tensor = key // len(arrays.slots)
    device = key % len(arrays.slots)
    source = device_of_op[arrays.producer[tensor]]
    order = scratch.executor.order[0]
    # Rule 8: the arrival of a tensor owes the receiver receive_seconds[d, e, 0]
    # + bytes * receive_seconds[d, e, 1].
    _work_off(scratch, device, now)
    scratch.executor.owed[device] += (
        executor.receive_seconds[source, device, 0]
        + arrays.tensor_bytes[tensor] * executor.receive_seconds[source, device, 1]
    )
    for index in range(arrays.use_row[tensor], arrays.use_row[tensor + 1]):
        user = executor.use_op[order, index]
        if device_of_op[user] == device:
            scratch.pending[user] -= 1
            # Rule 7: what an arrival makes ready goes to the back, in index order.
            if scratch.pending[user] == 0:
                _queue_at_back(scratch, device, user)
    if scratch.tracks_memory:
        let_go(arrays, scratch, device_of_op, tensor, source)


@compiled_part
def _work_off(scratch: Scratch, device: int, now: float) -> None:
    """Rule 8: a device on which nothing runs works off what it is owed, second by second."""
    if scratch.running[device] == 0:
        done = now - scratch.executor.owed_since[device]
        scratch.executor.owed[device] = max(scratch.executor.owed[device] - done, 0.0)
        scratch.executor.owed_since[device] = now

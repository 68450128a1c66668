"""What each op of a schedule waited for last, and the chain of these back to the step's start."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule

OP, TRANSFER, SENDING, NOTHING = "op", "transfer", "sending", "nothing"


@dataclasses.dataclass(frozen=True)
class Causes:
    """The last tensor that each op waited for.

    Attributes:
      ready: f8[N] seconds, when the last of the op's inputs was there; 0 without inputs.
      producer: i4[N] the op that made this last input; -1 without inputs.
      transfer: i4[N] what brought it (index into the schedule's transfers); -1 where it was made
        on the op's own device.
    """

    ready: FloatArray
    producer: IntArray
    transfer: IntArray


@dataclasses.dataclass(frozen=True)
class Span:
    """A stretch of time in a chain of causes, and what happens in it.

    Attributes:
      kind: OP: an op runs, or is ready and waits for its busy device. TRANSFER: a tensor is on
        its way, or waits for its link. SENDING: the device copies tensors itself, which takes a
        slot of it (the contract, section 6, rule 8). NOTHING: the device has no op left.
      device: where the op lies, or from where the transfer comes; -1 for NOTHING.
      item: number of the op or transfer; -1 where other ops of that device, or nothing, are what
        is waited for.
      start: seconds.
      end: seconds.
    """

    kind: str
    device: int
    item: int
    start: float
    end: float


def causes_of(problem: Problem, schedule: Schedule) -> Causes:
    """The last input of every op; of several at one instant the last in the order of tensors."""
    graph, transfers = problem.graph, schedule.transfers
    size, num_ops = problem.num_devices, graph.num_ops
    producer = graph.tensor_producer[graph.use_tensor]
    device = schedule.device_of_op
    target = device[graph.use_op]
    # The transfer of each tensor to each device, as a flat [T * D]; -1 for none.
    by_key = np.full(graph.num_tensors * size, -1, dtype=np.int32)
    by_key[transfers.tensor * size + transfers.target] = np.arange(len(transfers.tensor))
    is_local = device[producer] == target
    moved = np.where(is_local, -1, by_key[graph.use_tensor * size + target])
    arrival = schedule.op_end[producer]
    arrival = np.where(is_local, arrival, np.append(transfers.arrival, 0.0)[moved])
    # The last row of each op, sorted by arrival, is the input it waited for.
    order = np.lexsort((graph.use_tensor, arrival, graph.use_op))
    ops = graph.use_op[order]
    last = order[np.append(ops[1:] != ops[:-1], True)] if len(order) else order
    causes = Causes(np.zeros(num_ops), *(np.full(num_ops, -1, np.int32) for _ in range(2)))
    causes.ready[graph.use_op[last]] = arrival[last]
    causes.producer[graph.use_op[last]] = producer[last]
    causes.transfer[graph.use_op[last]] = moved[last]
    return causes


def chain_before(causes: Causes, schedule: Schedule, op: int, since: float) -> Iterator[Span]:
    """What had to happen before `op` could start, from its start back to `since`.

    Every moment between belongs to one span; spans of no length are left out.

    Args:
      causes: of the schedule.
      schedule: one simulated step.
      op: where to begin.
      since: seconds; spans are cut there.
    """
    home = int(schedule.device_of_op[op])
    here, is_first = op, True
    while schedule.op_start[here] > since:
        device = int(schedule.device_of_op[here])
        start, ready = float(schedule.op_start[here]), float(causes.ready[here])
        # Ready, but not started: its device had no free slot. While the first op's own device is
        # idle no op takes one, so there it is a copy that does.
        busy = SENDING if is_first and device == home else OP
        yield from _cut(Span(busy, device, -1, ready, start), since)
        producer, moved = int(causes.producer[here]), int(causes.transfer[here])
        if producer < 0 or ready <= since:
            return
        made_on = int(schedule.device_of_op[producer])
        ended = float(schedule.op_end[producer])
        if moved >= 0:
            yield from _cut(Span(TRANSFER, made_on, moved, ended, ready), since)
        began = float(schedule.op_start[producer])
        yield from _cut(Span(OP, made_on, producer, began, ended), since)
        is_first = is_first and moved < 0 and began == ended
        here = producer


def critical_chain(causes: Causes, schedule: Schedule) -> list[Span]:
    """The chain that ends with the step, in the order of time; empty without ops.

    Whoever wants a shorter step must shorten this chain: nothing else delays the step's end.
    """
    if not len(schedule.op_end):
        return []
    last = int(np.argmax(schedule.op_end))
    start, end = float(schedule.op_start[last]), float(schedule.op_end[last])
    final = Span(OP, int(schedule.device_of_op[last]), last, start, end)
    chain = [final, *chain_before(causes, schedule, last, 0.0)]
    return [dataclasses.replace(s, kind=OP) if s.kind == SENDING else s for s in reversed(chain)]


def _cut(span: Span, since: float) -> Iterator[Span]:
    start = max(span.start, since)
    if start < span.end:
        yield dataclasses.replace(span, start=start)

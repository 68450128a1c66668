"""Which device waits for what: every idle moment of a step has one cause.

A device is idle while no op runs on it. What it waits for at a moment is what the chain of causes
behind its next op does at that moment: an op on some device, or a transfer from one. So a device
that waits for a tensor whose producer itself waits for a third device waits for the third.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule
from tfplace.units_text import share_text

# What each op of a schedule waited for last, and the chain of these back to the step's start.

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


LEAST_SHARE = 0.03
"""Share of the step from which on a sentence names a wait; shorter ones are summed up."""
SHOWN_SHARE = 0.005
"""Share of the step below which nothing is said: it would be shown as 0 %."""
BUSY_SHARE = 0.02
"""A device that computes for less than this share of the step has no waits worth naming."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time in which no op runs on a device."""

    start: float  # seconds
    end: float  # seconds
    spans: Sequence[Span]  # what is waited for, in the order of time; they fill the gap


@dataclasses.dataclass(frozen=True)
class DeviceTime:
    """A device's share of one step.

    Attributes:
      computing_seconds: how long at least one op runs.
      gaps: the rest of the step.
      waits: {(kind, device): seconds} of the gaps' spans; what takes longest comes first.
    """

    computing_seconds: float
    gaps: Sequence[Gap]
    waits: Mapping[tuple[str, int], float]


def device_times(problem: Problem, schedule: Schedule, causes: Causes) -> list[DeviceTime]:
    """[D]: how each device spends the step."""
    return [_device_time(schedule, causes, device) for device in range(problem.num_devices)]


def chain_shares(schedule: Schedule, causes: Causes) -> Mapping[tuple[str, int], float]:
    """{(kind, device): seconds} of the chain that ends with the step; what takes longest first."""
    return _summed(critical_chain(causes, schedule))


def _device_time(schedule: Schedule, causes: Causes, device: int) -> DeviceTime:
    runs = np.flatnonzero((schedule.device_of_op == device) & (schedule.op_end > schedule.op_start))
    runs = runs[np.argsort(schedule.op_start[runs], kind="stable")]
    gaps, busy_until = [], 0.0
    for op in runs.tolist():
        start = float(schedule.op_start[op])
        if start > busy_until:
            spans = list(chain_before(causes, schedule, op, busy_until))
            gaps.append(Gap(busy_until, start, spans[::-1]))
        busy_until = max(busy_until, float(schedule.op_end[op]))
    if busy_until < schedule.makespan:
        left = Span(NOTHING, -1, -1, busy_until, schedule.makespan)
        gaps.append(Gap(busy_until, schedule.makespan, [left]))
    idle = sum(gap.end - gap.start for gap in gaps)
    return DeviceTime(
        max(schedule.makespan - idle, 0.0), gaps, _summed([s for gap in gaps for s in gap.spans])
    )


def _summed(spans: Sequence[Span]) -> dict[tuple[str, int], float]:
    total: collections.defaultdict[tuple[str, int], float] = collections.defaultdict(float)
    for span in spans:
        total[span.kind, span.device] += span.end - span.start
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def wait_text(kind: str, device: int, own: int, names: Sequence[str]) -> str:
    """ "for ops on GPU:0", as part of a sentence about the device `own`."""
    if kind == NOTHING:
        return "with nothing left to do"
    if kind == SENDING:
        return "for its own sends"
    if kind == TRANSFER and device == own:
        return "for its own transfers to others"
    return f"for {'transfers from' if kind == TRANSFER else 'ops on'} {names[device]}"


def sentence(time: DeviceTime, own: int, makespan: float, names: Sequence[str]) -> str:
    """One device's step in a sentence: "GPU:1 computes 60 % of the step; it waits ..."."""
    if not makespan:
        return f"{names[own]} has nothing to do"
    if not time.computing_seconds:
        return f"{names[own]} computes nothing"
    shares = {key: seconds / makespan for key, seconds in time.waits.items()}
    left = shares.pop((NOTHING, -1), 0.0)
    waits = [
        f"{share_text(share)} {wait_text(kind, device, own, names)}"
        for (kind, device), share in shares.items()
        if share >= LEAST_SHARE
    ]
    rest = sum(share for share in shares.values() if share < LEAST_SHARE)
    if rest >= SHOWN_SHARE:
        waits.append(f"{share_text(rest)} for {'other things' if waits else 'others'}")
    computing = time.computing_seconds / makespan
    told = share_text(computing) if computing >= SHOWN_SHARE else "less than 1 %"
    parts = [f"{names[own]} computes {told} of the step"]
    parts += [f"it waits {_listed(waits)}"] if waits else []
    if left >= SHOWN_SHARE:
        parts.append(f"for the last {share_text(left)} it has nothing left to do")
    return "; ".join(parts)


def longest_wait(
    times: Sequence[DeviceTime], makespan: float
) -> tuple[int, str, int, float] | None:
    """(device, kind, other device, seconds) of the longest cause of idleness of a busy device."""
    waits = [
        (seconds, device, kind, other)
        for device, time in enumerate(times)
        if time.computing_seconds >= BUSY_SHARE * makespan
        for (kind, other), seconds in time.waits.items()
        if kind != NOTHING
    ]
    if not waits:
        return None
    seconds, device, kind, other = max(waits, key=lambda wait: wait[0])
    return device, kind, other, seconds


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def short_names(device_names: Sequence[str]) -> list[str]:
    """Device names as short as they stay distinct: "GPU:1", "worker:1 CPU:0"."""
    short = []
    for name in device_names:
        parts = dict(part.partition(":")[::2] for part in name.strip("/").split("/") if ":" in part)
        device = parts.get("device", name)
        task = f"{parts['job']}:{parts.get('task', '0')} " if "job" in parts else ""
        short.append(task + device)
    return short if len(set(short)) == len(short) else list(device_names)

"""Which device waits for what: every idle moment of a step has one cause.

A device is idle while no op runs on it. What it waits for at a moment is what the chain of causes
behind its next op does at that moment: an op on some device, or a transfer from one. So a device
that waits for a tensor whose producer itself waits for a third device waits for the third.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.report.explaining.causes import (
    NOTHING,
    SENDING,
    TRANSFER,
    Causes,
    Span,
    chain_before,
    critical_chain,
)
from tfplace.simulation.schedule import Schedule
from tfplace.units_text import share_text

LEAST_SHARE = 0.03
"""What a sentence names; less is summed up."""
SHOWN_SHARE = 0.005
"""Less rounds to 0 %."""
BUSY_SHARE = 0.02
"""A device that computes less is a bystander."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time in which no op runs on a device.

    Attributes:
      start, end: seconds.
      next_op: what ends it; -1 at the end of the step.
      spans: what is waited for, in the order of time; they fill the gap.
    """

    start: float
    end: float
    next_op: int
    spans: Sequence[Span]


@dataclasses.dataclass(frozen=True)
class DeviceTime:
    """A device's share of one step.

    Attributes:
      computing_seconds: while at least one op runs.
      gaps: the rest of the step.
      waits: {(kind, device): seconds}, the gaps' spans summed; the longest first.
    """

    computing_seconds: float
    gaps: Sequence[Gap]
    waits: Mapping[tuple[str, int], float]


def device_times(problem: Problem, schedule: Schedule, causes: Causes) -> list[DeviceTime]:
    """[D]: how each device spends the step."""
    return [_device_time(schedule, causes, device) for device in range(problem.num_devices)]


def chain_shares(schedule: Schedule, causes: Causes) -> Mapping[tuple[str, int], float]:
    """{(kind, device): seconds} of the chain that ends with the step; the longest first."""
    return _summed(critical_chain(causes, schedule))


def _device_time(schedule: Schedule, causes: Causes, device: int) -> DeviceTime:
    runs = np.flatnonzero((schedule.device_of_op == device) & (schedule.op_end > schedule.op_start))
    runs = runs[np.argsort(schedule.op_start[runs], kind="stable")]
    starts = schedule.op_start[runs]
    busy_until = np.maximum.accumulate(schedule.op_end[runs]) if len(runs) else np.zeros(0)
    gaps = [
        _gap(schedule, causes, (since, float(starts[index])), int(runs[index]))
        for index, since in _gap_starts(starts, busy_until)
    ]
    end = float(busy_until[-1]) if len(runs) else 0.0
    if end < schedule.makespan:
        left = Span(NOTHING, -1, -1, end, schedule.makespan)
        gaps.append(Gap(end, schedule.makespan, -1, [left]))
    idle = sum(gap.end - gap.start for gap in gaps)
    return DeviceTime(
        max(schedule.makespan - idle, 0.0), gaps, _summed([s for gap in gaps for s in gap.spans])
    )


def _gap_starts(starts: FloatArray, busy_until: FloatArray) -> list[tuple[int, float]]:
    """(position of the op that ends the gap, the gap's start) of each gap before an op."""
    before = np.concatenate([[0.0], busy_until[:-1]]) if len(starts) else starts
    return [(int(index), float(before[index])) for index in np.flatnonzero(starts > before)]


def _gap(schedule: Schedule, causes: Causes, seconds: tuple[float, float], next_op: int) -> Gap:
    start, end = seconds
    spans = list(chain_before(causes, schedule, next_op, start))
    return Gap(start, end, next_op, spans[::-1])


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

"""Which device waits for what: every idle moment of a step has one cause.

A device is idle while no op runs on it. What it waits for at a moment is what the chain of causes
behind its next op does at that moment: an op on some device, or a transfer from one. So a device
that waits for a tensor whose producer itself waits for a third device waits for the third.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

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
"""Share of the step from which on a sentence names a wait; shorter ones are summed up."""
SHOWN_SHARE = 0.005
"""Share of the step below which nothing is said: it would be shown as 0 %."""
BUSY_SHARE = 0.02
"""A device that computes for less than this share of the step has no waits worth naming."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time in which no op runs on a device.

    Attributes:
      start: seconds.
      end: seconds.
      spans: what is waited for, in the order of time; they fill the gap.
    """

    start: float
    end: float
    spans: Sequence[Span]


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

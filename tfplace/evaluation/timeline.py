"""A schedule in the trace event format that Chrome and Perfetto show.

The format wants microseconds: here alone seconds are turned into them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphs.problem import Problem
from tfplace.evaluation.schedule import Schedule, memory_use

MICROSECONDS_PER_SECOND = 1e6

TraceEvent = dict[str, Any]


def chrome_trace(problem: Problem, schedule: Schedule) -> Mapping[str, Any]:
    """The trace as the object that trace viewers load from JSON.

    A device is a process with a thread for each slot and a counter of its memory; all links
    are one process more, a thread for each ordered pair of devices that moves anything. A
    transfer lasts from its start to its arrival.

    Args:
      problem: what was simulated.
      schedule: one run of it.

    Returns:
      {"traceEvents": [...], "displayTimeUnit": "ms", "otherData": {...}}.
    """
    events = [
        *_process_names(problem),
        *_op_events(problem, schedule),
        *_link_events(problem, schedule),
        *_memory_events(problem, schedule),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "makespan_seconds": schedule.makespan,
            "communication": problem.communication,
        },
    }


def slot_of_op(schedule: Schedule, num_devices: int) -> list[int]:
    """[N]: the lowest slot of its device that is free when the op starts."""
    free: list[list[int]] = [[] for _ in range(num_devices)]
    used = [0] * num_devices
    busy: list[list[tuple[float, int]]] = [[] for _ in range(num_devices)]
    slots = [0] * len(schedule.op_start)
    # Zero-second ops come first among those of one instant: they leave their slot at once.
    lasts = schedule.op_end > schedule.op_start
    for op in np.lexsort((lasts, schedule.op_start)).tolist():
        device = int(schedule.device_of_op[op])
        while busy[device] and busy[device][0][0] <= schedule.op_start[op]:
            heapq.heappush(free[device], heapq.heappop(busy[device])[1])
        if not free[device]:
            heapq.heappush(free[device], used[device])
            used[device] += 1
        slots[op] = heapq.heappop(free[device])
        heapq.heappush(busy[device], (float(schedule.op_end[op]), slots[op]))
    return slots


def _process_names(problem: Problem) -> Iterator[TraceEvent]:
    for index, name in enumerate([*problem.device_names, "links"]):
        yield {"ph": "M", "name": "process_name", "pid": index, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": index,
            "args": {"sort_index": index},
        }


def _op_events(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    slots = slot_of_op(schedule, problem.num_devices)
    threads = sorted(set(zip(schedule.device_of_op.tolist(), slots, strict=True)))
    for device, slot in threads:
        yield _thread_name(device, slot, f"slot {slot}")
    for op, name in enumerate(problem.graph.op_names):
        yield _span(
            str(problem.graph.op_types[op]),
            (int(schedule.device_of_op[op]), slots[op]),
            (float(schedule.op_start[op]), float(schedule.op_end[op])),
            {"op": str(name)},
        )


def _link_events(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    transfers, names = schedule.transfers, problem.device_names
    pairs = sorted(set(zip(transfers.source.tolist(), transfers.target.tolist(), strict=True)))
    links = problem.num_devices
    for thread, (source, target) in enumerate(pairs):
        yield _thread_name(links, thread, f"{names[source]} → {names[target]}")
    thread_of = {pair: thread for thread, pair in enumerate(pairs)}
    for index, tensor in enumerate(transfers.tensor.tolist()):
        producer = problem.graph.tensor_producer[tensor]
        output = int(problem.graph.tensor_output[tensor])
        name = str(problem.graph.op_names[producer])
        pair = (int(transfers.source[index]), int(transfers.target[index]))
        yield _span(
            f"^{name}" if output < 0 else f"{name}:{output}",
            (links, thread_of[pair]),
            (float(transfers.start[index]), float(transfers.arrival[index])),
            {
                "bytes": int(transfers.bytes[index]),
                "release_seconds": float(transfers.release[index]),
            },
        )


def _memory_events(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    for device, use in enumerate(memory_use(problem, schedule)):
        for seconds, held in zip(use.seconds.tolist(), use.bytes.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": "memory",
                "pid": device,
                "ts": seconds * MICROSECONDS_PER_SECOND,
                "args": {"bytes": held},
            }


def _thread_name(process: int, thread: int, name: str) -> TraceEvent:
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": process,
        "tid": thread,
        "args": {"name": name},
    }


def _span(
    name: str, track: tuple[int, int], seconds: tuple[float, float], args: Mapping[str, Any]
) -> TraceEvent:
    """A complete event; track is (process, thread), seconds (start, end)."""
    start, end = seconds
    return {
        "ph": "X",
        "name": name,
        "pid": track[0],
        "tid": track[1],
        "ts": start * MICROSECONDS_PER_SECOND,
        "dur": (end - start) * MICROSECONDS_PER_SECOND,
        "args": dict(args),
    }

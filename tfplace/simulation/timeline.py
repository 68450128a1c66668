"""A schedule in the trace event format that Chrome and Perfetto show.

The format wants microseconds: here alone seconds are turned into them. They are whole nanoseconds,
as viewers count, so that what follows on an event never begins before that ends. Slices of one
thread nest or lie apart; overlapping ones get threads of their own. Viewers take process and
thread 0 for the idle task, so both are counted from 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule, memory_use

NANOSECONDS_PER_SECOND = 1e9

TraceEvent = dict[str, Any]
Track = tuple[int, int]
"""(process, thread)."""


def chrome_trace(problem: Problem, schedule: Schedule) -> Mapping[str, Any]:
    """The trace as the object that trace viewers load from JSON.

    A device is a process with a thread for each slot and a counter of its memory; all links
    are one process more, a thread for each ordered pair of devices that moves anything (and
    further ones where its transfers overlap, as by their latency). A transfer lasts from its start
    to its arrival; a flow leads from the op that made the tensor through it to its first user.

    Args:
      problem: what was simulated.
      schedule: one run of it.

    Returns:
      {"traceEvents": [...], "displayTimeUnit": "ms", "otherData": {...}}.
    """
    slots = slot_of_op(schedule, problem.num_devices)
    tracks = [
        (device + 1, slot + 1)
        for device, slot in zip(schedule.device_of_op.tolist(), slots, strict=True)
    ]
    links = _link_tracks(problem, schedule)
    events = [
        *_process_names(problem),
        *_op_events(problem, schedule, tracks),
        *_link_events(problem, schedule, links),
        *_flows(problem, schedule, tracks, links),
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
    return _lanes(schedule.device_of_op.tolist(), schedule.op_start, schedule.op_end, num_devices)


def _lanes(places: Sequence[int], starts: FloatArray, ends: FloatArray, size: int) -> list[int]:
    """The lowest lane of its place (below `size`) that is free when an item starts."""
    free: list[list[int]] = [[] for _ in range(size)]
    used = [0] * size
    busy: list[list[tuple[float, int]]] = [[] for _ in range(size)]
    lanes = [0] * len(starts)
    # Items of no time come first among those of one instant: they leave their lane at once.
    for item in np.lexsort((ends > starts, starts)).tolist():
        place = places[item]
        while busy[place] and busy[place][0][0] <= starts[item]:
            heapq.heappush(free[place], heapq.heappop(busy[place])[1])
        if not free[place]:
            heapq.heappush(free[place], used[place])
            used[place] += 1
        lanes[item] = heapq.heappop(free[place])
        heapq.heappush(busy[place], (float(ends[item]), lanes[item]))
    return lanes


def _process_names(problem: Problem) -> Iterator[TraceEvent]:
    for index, name in enumerate([*problem.device_names, "links"], 1):
        yield _metadata("process_name", (index, 1), {"name": name})
        yield _metadata("process_sort_index", (index, 1), {"sort_index": index})


def _op_events(
    problem: Problem, schedule: Schedule, tracks: Sequence[Track]
) -> Iterator[TraceEvent]:
    for track in sorted(set(tracks)):
        yield _metadata("thread_name", track, {"name": f"slot {track[1] - 1}"})
    for op, name in enumerate(problem.graph.op_names):
        yield _span(
            str(problem.graph.op_types[op]),
            tracks[op],
            (float(schedule.op_start[op]), float(schedule.op_end[op])),
            {"op": str(name)},
        )


def _link_tracks(problem: Problem, schedule: Schedule) -> list[tuple[Track, str]]:
    """Each transfer's track and that track's name, in the order of the log."""
    transfers, names = schedule.transfers, problem.device_names
    pairs = list(zip(transfers.source.tolist(), transfers.target.tolist(), strict=True))
    place = {pair: number for number, pair in enumerate(sorted(set(pairs)))}
    lanes = _lanes([place[pair] for pair in pairs], transfers.start, transfers.arrival, len(place))
    keys = sorted({(place[pair], lane) for pair, lane in zip(pairs, lanes, strict=True)})
    thread = {key: number for number, key in enumerate(keys, 1)}
    tracks = []
    for pair, lane in zip(pairs, lanes, strict=True):
        label = f"{names[pair[0]]} → {names[pair[1]]}" + (f" ({lane + 1})" if lane else "")
        tracks.append(((problem.num_devices + 1, thread[place[pair], lane]), label))
    return tracks


def _link_events(
    problem: Problem, schedule: Schedule, links: Sequence[tuple[Track, str]]
) -> Iterator[TraceEvent]:
    transfers = schedule.transfers
    for track, label in sorted(set(links)):
        yield _metadata("thread_name", track, {"name": label})
        yield _metadata("thread_sort_index", track, {"sort_index": track[1]})
    for index, tensor in enumerate(transfers.tensor.tolist()):
        producer = problem.graph.tensor_producer[tensor]
        output = int(problem.graph.tensor_output[tensor])
        name = str(problem.graph.op_names[producer])
        yield _span(
            f"^{name}" if output < 0 else f"{name}:{output}",
            links[index][0],
            (float(transfers.start[index]), float(transfers.arrival[index])),
            {
                "bytes": int(transfers.bytes[index]),
                "release_seconds": float(transfers.release[index]),
            },
        )


def _flows(
    problem: Problem,
    schedule: Schedule,
    tracks: Sequence[Track],
    links: Sequence[tuple[Track, str]],
) -> Iterator[TraceEvent]:
    """Arrows from producer to transfer to first user, where all three take time.

    A flow event belongs to the slice that is open at its time: the middle of it is taken.
    """
    graph, transfers = problem.graph, schedule.transfers
    target = schedule.device_of_op[graph.use_op]
    first: dict[tuple[int, int], int] = {}
    for use in np.argsort(-schedule.op_start[graph.use_op], kind="stable").tolist():
        first[int(graph.use_tensor[use]), int(target[use])] = int(graph.use_op[use])
    for index, tensor in enumerate(transfers.tensor.tolist()):
        producer = int(graph.tensor_producer[tensor])
        user = first[tensor, int(transfers.target[index])]
        slices = [
            ("s", tracks[producer], schedule.op_start[producer], schedule.op_end[producer]),
            ("t", links[index][0], transfers.start[index], transfers.arrival[index]),
            ("f", tracks[user], schedule.op_start[user], schedule.op_end[user]),
        ]
        if all(_nanoseconds(end) - _nanoseconds(start) > 1 for _, _, start, end in slices):
            for phase, track, start, end in slices:
                middle = (_nanoseconds(start) + _nanoseconds(end)) // 2
                yield {
                    "ph": phase,
                    "cat": "transfer",
                    "name": "transfer",
                    "id": index,
                    "pid": track[0],
                    "tid": track[1],
                    "ts": middle / 1e3,
                    **({"bp": "e"} if phase == "f" else {}),
                }


def _memory_events(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    for device, use in enumerate(memory_use(problem, schedule)):
        for seconds, held in zip(use.seconds.tolist(), use.bytes.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": "memory",
                "pid": device + 1,
                "ts": _nanoseconds(seconds) / 1e3,
                "args": {"bytes": held},
            }


def _metadata(kind: str, track: Track, args: Mapping[str, Any]) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": track[0], "tid": track[1], "args": dict(args)}


def _span(
    name: str, track: Track, seconds: tuple[float, float], args: Mapping[str, Any]
) -> TraceEvent:
    """A complete event; seconds are (start, end)."""
    start, end = (_nanoseconds(instant) for instant in seconds)
    return {
        "ph": "X",
        "name": name,
        "pid": track[0],
        "tid": track[1],
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": dict(args),
    }


def _nanoseconds(seconds: float) -> int:
    return round(float(seconds) * NANOSECONDS_PER_SECOND)

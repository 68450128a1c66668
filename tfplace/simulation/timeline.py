"""A schedule in the trace event format that Chrome and Perfetto show.

The format wants microseconds: here alone seconds are turned into them. They are whole nanoseconds,
as viewers count, so that what follows on an event never begins before that ends. Slices of one
thread nest or lie apart; overlapping ones get threads of their own. Viewers take process and
thread 0 for the idle task, so both are counted from 1.
"""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from graphs.op_graph import FloatArray, LongArray
from graphs.problem import Problem
from graphs.protos import Json, JsonObject
from tfplace.simulation.schedule import Schedule, memory_use

NANOSECONDS_PER_SECOND = 1e9

TraceEvent = dict[str, Json]
Track = tuple[int, int]
"""(process, thread)."""


def chrome_trace(problem: Problem, schedule: Schedule) -> JsonObject:
    """The trace as the object that trace viewers load from JSON.

    A device is a process with a thread for each slot and a counter of its memory; all links
    are one process more, a thread for each ordered pair of devices that moves anything (and
    further ones where its transfers overlap, as by their latency). A transfer lasts from its start
    to its arrival; a flow leads from the op that made the tensor through it to its first user.

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
    spans = _spans(schedule.op_start, schedule.op_end)
    graph = problem.graph
    for kind, track, span, name in zip(graph.op_types, tracks, spans, graph.op_names, strict=True):
        yield _complete(str(kind), track, span, {"op": str(name)})


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
    producers = problem.graph.tensor_producer[transfers.tensor].tolist()
    outputs = problem.graph.tensor_output[transfers.tensor].tolist()
    spans = _spans(transfers.start, transfers.arrival)
    moved = zip(transfers.bytes.tolist(), transfers.release.tolist(), strict=True)
    for producer, output, (track, _), span, (num_bytes, release) in zip(
        producers, outputs, links, spans, moved, strict=True
    ):
        name = str(problem.graph.op_names[producer])
        yield _complete(
            f"^{name}" if output < 0 else f"{name}:{output}",
            track,
            span,
            {"bytes": num_bytes, "release_seconds": release},
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
    # Of a tensor's users on a device the one that starts first: what is written last stays.
    last_first = np.argsort(-schedule.op_start[graph.use_op], kind="stable")
    keys = zip(graph.use_tensor[last_first].tolist(), target[last_first].tolist(), strict=True)
    first = dict(zip(keys, graph.use_op[last_first].tolist(), strict=True))
    moved = zip(transfers.tensor.tolist(), transfers.target.tolist(), strict=True)
    producer = graph.tensor_producer[transfers.tensor]
    user = np.array([first[pair] for pair in moved], dtype=np.int64)
    slices = [
        ("s", schedule.op_start[producer], schedule.op_end[producer]),
        ("t", transfers.start, transfers.arrival),
        ("f", schedule.op_start[user], schedule.op_end[user]),
    ]
    take_time = np.ones(len(user), dtype=bool)
    middles = []
    for _, start, end in slices:
        begins, ends = _nanoseconds(start), _nanoseconds(end)
        take_time &= ends - begins > 1
        middles.append((begins + ends) // 2 / 1e3)
    for index in np.flatnonzero(take_time).tolist():
        ends_at = (tracks[producer[index]], links[index][0], tracks[user[index]])
        for (phase, _, _), track, middle in zip(slices, ends_at, middles, strict=True):
            yield {
                "ph": phase,
                "cat": "transfer",
                "name": "transfer",
                "id": index,
                "pid": track[0],
                "tid": track[1],
                "ts": float(middle[index]),
                **({"bp": "e"} if phase == "f" else {}),
            }


def _memory_events(problem: Problem, schedule: Schedule) -> Iterator[TraceEvent]:
    for device, use in enumerate(memory_use(problem, schedule)):
        instants = (_nanoseconds(use.seconds) / 1e3).tolist()
        for instant, held in zip(instants, use.bytes.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": "memory",
                "pid": device + 1,
                "ts": instant,
                "args": {"bytes": held},
            }


def _metadata(kind: str, track: Track, args: JsonObject) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": track[0], "tid": track[1], "args": dict(args)}


def _complete(name: str, track: Track, span: tuple[float, float], args: JsonObject) -> TraceEvent:
    """A complete event; its span is (start, duration) in microseconds."""
    return {
        "ph": "X",
        "name": name,
        "pid": track[0],
        "tid": track[1],
        "ts": span[0],
        "dur": span[1],
        "args": args,
    }


def _spans(starts: FloatArray, ends: FloatArray) -> Iterator[tuple[float, float]]:
    """(start, duration) of each slice, in microseconds."""
    begins = _nanoseconds(starts)
    durations = _nanoseconds(ends) - begins
    return zip((begins / 1e3).tolist(), (durations / 1e3).tolist(), strict=True)


def _nanoseconds(seconds: FloatArray) -> LongArray:
    return np.rint(seconds * NANOSECONDS_PER_SECOND).astype(np.int64)

"""The contract, section 6, rules 1 to 5, a third time: with heaps, for problems of any size.

`tests/reference_simulator.py` looks at every op in every round; this one does not, and is held
against it where both can be run.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem


def heap_makespan(problem: Problem, device_of_op: IntArray) -> float:
    """Seconds of a step; inf where an op has no kernel. An executor is not simulated."""
    assert problem.executor is None
    graph, device = problem.graph, [int(d) for d in device_of_op]
    seconds = problem.op_seconds[np.arange(graph.num_ops), device_of_op].tolist()
    if any(math.isinf(each) for each in seconds):
        return math.inf
    tensors, users = defaultdict(list), defaultdict(list)
    for tensor, op in enumerate(graph.tensor_producer.tolist()):
        tensors[op].append(tensor)
    missing = [0] * graph.num_ops
    for tensor, op in zip(graph.use_tensor.tolist(), graph.use_op.tolist(), strict=True):
        users[tensor].append(op)
        missing[op] += 1
    ready: list[list[tuple[float, int]]] = [[] for _ in range(problem.num_devices)]
    slots, free_at = problem.device_slots.tolist(), defaultdict(float)
    ends: list[tuple[float, int]] = []
    arrivals: list[tuple[float, int, int]] = []
    now, last = 0.0, 0.0

    def arrive(tensor: int, there: int) -> None:
        for op in users[tensor]:
            if device[op] == there:
                missing[op] -= 1
                if not missing[op]:
                    heapq.heappush(ready[there], (now, op))

    def send(tensor: int, source: int, target: int) -> None:
        channels = [c for c in problem.link_channels[source, target].tolist() if c >= 0]
        start = max([now, *(free_at[c] for c in channels)])
        rate = float(problem.link_bytes_per_second[source, target])
        release = start + float(graph.tensor_bytes[tensor]) / rate
        for channel in channels:
            free_at[channel] = release
        arrival = release + float(problem.link_latency[source, target])
        heapq.heappush(arrivals, (arrival, tensor, target))

    for op in range(graph.num_ops):
        if not missing[op]:
            heapq.heappush(ready[device[op]], (0.0, op))
    while True:
        while ends and ends[0][0] == now:
            _, op = heapq.heappop(ends)
            slots[device[op]] += 1
            for tensor in tensors[op]:
                for target in sorted({device[user] for user in users[tensor]} - {device[op]}):
                    send(tensor, device[op], target)
                arrive(tensor, device[op])
        while arrivals and arrivals[0][0] == now:
            _, tensor, target = heapq.heappop(arrivals)
            arrive(tensor, target)
        for here, waiting in enumerate(ready):
            while waiting and slots[here]:
                _, op = heapq.heappop(waiting)
                slots[here] -= 1
                last = max(last, now + seconds[op])
                heapq.heappush(ends, (now + seconds[op], op))
        times = [heap[0][0] for heap in (ends, arrivals) if heap]
        if not times:
            return last
        now = min(times)

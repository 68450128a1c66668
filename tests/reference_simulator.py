"""SPEC section 6 a second time: plain Python, straight from the text, slow, for tests only.

Nothing here is shared with tfplace.evaluation: sets, dicts and lists of intervals instead of
counters and heaps, and memory is summed up after the run instead of during it.
"""

from __future__ import annotations

import math

from graphs.problem import Problem


def reference_run(problem: Problem, device_of_op: list[int]) -> tuple[float, list[int]]:
    """Makespan in seconds and peak bytes [D]; where an op has no kernel, inf and no peaks."""
    run = _Run(problem, device_of_op)
    if any(math.isinf(seconds) for seconds in run.seconds):
        return math.inf, []
    run.simulate()
    return max(run.end_of.values(), default=0.0), run.peaks()


class _Run:
    """One run of one placement."""

    def __init__(self, problem: Problem, device_of_op: list[int]) -> None:
        graph = problem.graph
        self.problem = problem
        self.device = [int(device) for device in device_of_op]
        self.ops = range(graph.num_ops)
        self.devices = range(problem.num_devices)
        self.seconds = [float(problem.op_seconds[op, self.device[op]]) for op in self.ops]
        self.tensors_of: dict[int, list[int]] = {op: [] for op in self.ops}
        for tensor, producer in enumerate(graph.tensor_producer):
            self.tensors_of[int(producer)].append(tensor)
        self.users: dict[int, set[int]] = {tensor: set() for tensor in range(graph.num_tensors)}
        self.inputs: dict[int, set[int]] = {op: set() for op in self.ops}
        for tensor, op in zip(graph.use_tensor, graph.use_op, strict=True):
            self.users[int(tensor)].add(int(op))
            self.inputs[int(op)].add(int(tensor))
        self.there: dict[tuple[int, int], float] = {}  # (tensor, device) -> since when
        self.ready_at: dict[int, float] = {}
        self.start_of: dict[int, float] = {}
        self.end_of: dict[int, float] = {}
        self.running: set[int] = set()
        self.under_way: list[tuple[float, int, int]] = []  # (arrival, tensor, device)
        self.channel_free: dict[int, float] = {}
        self.transfers: list[tuple[int, int, float, float]] = []  # tensor, device, start, arrival

    def simulate(self) -> None:
        """Rules 1 to 5."""
        now = 0.0
        while True:
            self.round(now)
            while any(self.end_of[op] == now for op in self.running):
                self.round(now)
            times = [self.end_of[op] for op in self.running] + [x[0] for x in self.under_way]
            if not times:
                return
            now = min(times)

    def round(self, now: float) -> None:
        """Rule 4: ends by op index, arrivals by tensor and device, then starts by device."""
        for op in sorted(op for op in self.running if self.end_of[op] == now):
            self.running.remove(op)
            self.send(op, now)
        arrived = sorted(x for x in self.under_way if x[0] == now)
        self.under_way = [x for x in self.under_way if x[0] != now]
        for _, tensor, device in arrived:
            self.there[tensor, device] = now
        for op in self.ops:
            needs = [(tensor, self.device[op]) for tensor in self.inputs[op]]
            if op not in self.ready_at and all(need in self.there for need in needs):
                self.ready_at[op] = now
        for device in self.devices:
            self.start(device, now)

    def start(self, device: int, now: float) -> None:
        """Rules 1 and 2."""
        waiting = [op for op in self.ready_at if op not in self.start_of]
        for _, op in sorted((self.ready_at[op], op) for op in waiting if self.device[op] == device):
            busy = sum(self.device[other] == device for other in self.running)
            if busy < self.problem.device_slots[device]:
                self.start_of[op] = now
                self.end_of[op] = now + self.seconds[op]
                self.running.add(op)

    def send(self, op: int, now: float) -> None:
        """Rule 3."""
        source = self.device[op]
        for tensor in self.tensors_of[op]:
            self.there[tensor, source] = now
            for target in self.devices:
                if target == source or all(self.device[u] != target for u in self.users[tensor]):
                    continue
                channels = [int(c) for c in self.problem.link_channels[source, target] if c >= 0]
                start = max([now] + [self.channel_free.get(c, 0.0) for c in channels])
                size = float(self.problem.graph.tensor_bytes[tensor])
                release = start + size / float(self.problem.link_bytes_per_second[source, target])
                arrival = release + float(self.problem.link_latency[source, target])
                for channel in channels:
                    self.channel_free[channel] = release
                self.under_way.append((arrival, tensor, target))
                self.transfers.append((tensor, target, start, arrival))

    def intervals(self) -> list[tuple[int, float, float, int]]:
        """Rule 6 as (device, from, until, bytes)."""
        graph, held = self.problem.graph, []
        for op in self.ops:
            here = self.device[op]
            held.append((here, -1.0, math.inf, int(graph.op_persistent_bytes[op])))
            held.append((here, self.start_of[op], self.end_of[op], int(graph.op_temp_bytes[op])))
            for tensor in self.tensors_of[op]:
                until = [self.end_of[op]]
                until += [self.end_of[u] for u in self.users[tensor] if self.device[u] == here]
                until += [x[3] for x in self.transfers if x[0] == tensor]
                size = int(graph.tensor_alloc_bytes[tensor])
                held.append((here, self.start_of[op], max(until), size))
        for tensor, target, start, _ in self.transfers:
            ends = [self.end_of[u] for u in self.users[tensor] if self.device[u] == target]
            held.append((target, start, max(ends), int(graph.tensor_bytes[tensor])))
        return held

    def peaks(self) -> list[int]:
        """The most that any instant's half-open intervals add up to, per device."""
        held = self.intervals()
        instants = {start for _, start, _, _ in held}
        return [
            max(
                (
                    sum(
                        size
                        for where, start, until, size in held
                        if where == device and start <= now < until
                    )
                    for now in instants
                ),
                default=0,
            )
            for device in self.devices
        ]

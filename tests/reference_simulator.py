"""The contract, section 6, a second time: plain Python, straight from the text, for tests only.

The contract is `tfplace/docs/contract.md`; with Problem.executor its rules 7 to 10 hold as well.

Nothing here is shared with tfplace.simulation: sets, dicts and lists of intervals instead of
counters and heaps, and memory is summed up after the run instead of during it.
"""

from __future__ import annotations

import math

from graphs.problem import Problem


def reference_run(problem: Problem, device_of_op: list[int]) -> tuple[float, list[int]]:
    """Makespan in seconds and peak bytes [D]; where an op has no kernel, inf and no peaks.

    Of an executor's orders the mean makespan, and the peaks of the first.
    """
    executor = problem.executor
    turns = [None] if executor is None or executor.op_turn is None else executor.op_turn.tolist()
    runs = [_Run(problem, device_of_op, turn) for turn in turns]
    if any(math.isinf(seconds) for seconds in runs[0].seconds):
        return math.inf, []
    for run in runs:
        run.simulate()
    makespans = [max(run.end_of.values(), default=0.0) for run in runs]
    return sum(makespans) / len(makespans), runs[0].peaks()


class _Run:
    """One run of one placement."""

    def __init__(
        self, problem: Problem, device_of_op: list[int], turn: list[int] | None = None
    ) -> None:
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
        self.ended: set[int] = set()
        self.takes: dict[int, int] = {}  # tensor -> whose buffer it is on the producer's device
        self.running: set[int] = set()
        self.under_way: list[tuple[float, int, int]] = []  # (arrival, tensor, device)
        self.channel_free: dict[int, float] = {}
        self.transfers: list[tuple[int, int, float, float]] = []  # tensor, device, start, arrival
        # With an executor: what waits on a device, front first; sends are (tensor, target).
        self.queue: list[list[int | tuple[int, int]]] = [[] for _ in self.devices]
        self.sending: dict[tuple[int, int], float] = {}  # send -> its end
        self.turn = list(self.ops) if turn is None else turn
        self.owed = [0.0 for _ in self.devices]
        self.owed_since = [0.0 for _ in self.devices]  # or since nothing runs there

    def simulate(self) -> None:
        """Rules 1 to 5."""
        now = 0.0
        while True:
            self.round(now)
            while now in self.ends():
                self.round(now)
            times = self.ends() + [x[0] for x in self.under_way]
            if not times:
                return
            now = min(times)

    def ends(self) -> list[float]:
        """When what runs ends."""
        return [self.end_of[op] for op in self.running] + list(self.sending.values())

    def round(self, now: float) -> None:
        """Rule 4: ends by op index, arrivals by tensor and device, then starts by device."""
        for op in sorted(op for op in self.running if self.end_of[op] == now):
            self.running.remove(op)
            self.ended.add(op)
            self.owed_since[self.device[op]] = now
            if self.problem.executor is None:
                self.send(op, now)
            else:
                self.make_ready_locally(op, now)
        for tensor, target in sorted(x for x, end in self.sending.items() if end == now):
            del self.sending[tensor, target]
            self.owed_since[self.device[int(self.problem.graph.tensor_producer[tensor])]] = now
            self.transfer(tensor, target, now)
        arrived = sorted(x for x in self.under_way if x[0] == now)
        self.under_way = [x for x in self.under_way if x[0] != now]
        for _, tensor, device in arrived:
            self.there[tensor, device] = now
            if self.problem.executor is not None:
                self.receive(tensor, device, now)
        if self.problem.executor is not None:
            self.run_queues(now)
            return
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
                self.share_buffers(op)
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
                self.transfer(tensor, target, now)

    def transfer(self, tensor: int, target: int, now: float) -> None:
        """One tensor's way."""
        source = self.device[int(self.problem.graph.tensor_producer[tensor])]
        channels = [int(c) for c in self.problem.link_channels[source, target] if c >= 0]
        start = max([now] + [self.channel_free.get(c, 0.0) for c in channels])
        size = float(self.problem.graph.tensor_bytes[tensor])
        rate = float(self.problem.link_bytes_per_second[source, target])
        latency = float(self.problem.link_latency[source, target])
        if self.problem.executor is not None:  # rule 9: less what the ends do
            fixed, each = self.work("send_seconds", source, target)
            fixed_there, each_there = self.work("receive_seconds", source, target)
            per_byte = max(1.0 / rate - (each + each_there), 0.0)
            rate = 1.0 / per_byte if per_byte else math.inf
            latency = max(latency - (fixed + fixed_there), 0.0)
        release = start + size / rate
        arrival = release + latency
        for channel in channels:
            self.channel_free[channel] = release
        self.under_way.append((arrival, tensor, target))
        self.transfers.append((tensor, target, start, arrival))

    def work(self, name: str, source: int, target: int) -> tuple[float, float]:
        """Seconds of a transfer at one end: fixed, and per byte."""
        fixed, per_byte = getattr(self.problem.executor, name)[source, target].tolist()
        return fixed, per_byte

    def make_ready_locally(self, op: int, now: float) -> None:
        """Rule 7: what an op's end makes ready goes to the front of its device's queue."""
        here = self.device[op]
        queued: list[tuple[int, int | tuple[int, int]]] = []
        sends: list[tuple[int, tuple[int, int]]] = []
        inline: list[int] = []
        first = self.problem.executor.sends_first
        for tensor in self.tensors_of[op]:
            self.there[tensor, here] = now
            for target in self.devices:
                there = [user for user in self.users[tensor] if self.device[user] == target]
                if target != here and there:
                    goes_first = first is not None and first[here]
                    lowest = min(self.turn[user] for user in there)
                    (sends if goes_first else queued).append((lowest, (tensor, target)))
        users = {u for tensor in self.tensors_of[op] for u in self.users[tensor]}
        for user in sorted(users, key=lambda user: self.turn[user]):
            if self.device[user] == here and self.is_ready(user):
                self.ready_at[user] = now
                if self.problem.executor.runs_inline[user]:
                    inline.append(user)
                else:
                    queued.append((self.turn[user], user))
        queued.sort(key=lambda pair: pair[0])
        sends.sort(key=lambda pair: pair[0])
        last_first = [item for _, item in reversed(queued)]
        ahead = [item for _, item in reversed(sends)]
        self.queue[here] = [*ahead, *inline, *last_first, *self.queue[here]]

    def is_ready(self, op: int) -> bool:
        """Whether it has become ready just now."""
        needs = [(tensor, self.device[op]) for tensor in self.inputs[op]]
        return op not in self.ready_at and all(need in self.there for need in needs)

    def receive(self, tensor: int, device: int, now: float) -> None:
        """Rules 7 and 9: the receiver owes its part; what is ready goes to the back."""
        source = self.device[int(self.problem.graph.tensor_producer[tensor])]
        fixed, per_byte = self.work("receive_seconds", source, device)
        self.work_off(device, now)
        self.owed[device] += fixed + float(self.problem.graph.tensor_bytes[tensor]) * per_byte
        for user in sorted(self.users[tensor], key=lambda user: self.turn[user]):
            if self.device[user] == device and self.is_ready(user):
                self.ready_at[user] = now
                self.queue[device].append(user)

    def num_busy(self, device: int) -> int:
        """Ops and sends that run on a device."""
        producer = self.problem.graph.tensor_producer
        sends = sum(self.device[int(producer[tensor])] == device for tensor, _ in self.sending)
        return sends + sum(self.device[op] == device for op in self.running)

    def work_off(self, device: int, now: float) -> None:
        """Rule 8: time in which nothing runs there is used for what is owed."""
        if not self.num_busy(device):
            rest = self.owed[device] - (now - self.owed_since[device])
            self.owed[device], self.owed_since[device] = max(rest, 0.0), now

    def stretch(self, op: int) -> float:
        """Rule 10: how many times as long an op takes that starts now."""
        executor, here = self.problem.executor, self.device[op]
        if executor is None or executor.op_slowdown is None:
            return 1.0
        sharers = [device for device in self.devices if executor.shares_memory[here, device]]
        busy = sum(self.num_busy(device) > 0 for device in sharers)
        return 1.0 + float(executor.op_slowdown[op, here]) / max(len(sharers), 1) * busy

    def run_queues(self, now: float) -> None:
        """Rules 1, 2 and 8."""
        if now == 0.0:
            for op in sorted(self.ops, key=lambda op: self.turn[op]):
                if not self.inputs[op] and op not in self.ready_at:
                    self.ready_at[op] = now
                    self.queue[self.device[op]].append(op)
        for device in self.devices:
            while self.queue[device]:
                if self.num_busy(device) >= self.problem.device_slots[device]:
                    break
                self.work_off(device, now)
                item = self.queue[device].pop(0)
                owed, self.owed[device] = self.owed[device], 0.0
                if isinstance(item, tuple):
                    tensor, target = item
                    fixed, per_byte = self.work("send_seconds", device, target)
                    size = float(self.problem.graph.tensor_bytes[tensor])
                    self.sending[item] = now + ((fixed + size * per_byte) + owed)
                else:
                    self.share_buffers(item)
                    self.start_of[item] = now
                    self.end_of[item] = now + (self.seconds[item] * self.stretch(item) + owed)
                    self.running.add(item)

    def share_buffers(self, op: int) -> None:
        """Rule 6: whose buffers the outputs of an op are that starts now."""
        for tensor in [tensor for tensor in self.tensors_of[op] if self.users[tensor]]:
            source = int(self.problem.graph.tensor_shares[tensor])
            if source == tensor:
                continue
            takes_over = self.problem.graph.tensor_takes_over[tensor]
            if source >= 0 and not (takes_over and self.is_needed_besides(op, source)):
                self.takes[tensor] = source

    def is_needed_besides(self, op: int, tensor: int) -> bool:
        """Whether a buffer, here the one that `tensor` is in, can't be taken over by an op."""
        here, graph = self.device[op], self.problem.graph
        while self.device[int(graph.tensor_producer[tensor])] == here and tensor in self.takes:
            tensor = self.takes[tensor]
        made_here = self.device[int(graph.tensor_producer[tensor])] == here
        if made_here and graph.tensor_alloc_bytes[tensor] == 0:
            return True
        inside = {tensor}  # all that are in the same buffer
        for other, source in sorted(self.takes.items()):
            if source in inside and self.device[int(graph.tensor_producer[other])] == here:
                inside.add(other)
        holders = [(x, u) for x in inside for u in self.users[x] if self.device[u] == here]
        left = [(x, user) for x, user in holders if user not in self.ended]
        sent = any(self.is_leaving(x) for x in inside if x != tensor or made_here)
        kept = any(x == graph.tensor_shares[x] for x in inside if x != tensor or made_here)
        return kept or sent or len(left) != 1

    def is_leaving(self, tensor: int) -> bool:
        """Whether a tensor has still to arrive somewhere."""
        source = self.device[int(self.problem.graph.tensor_producer[tensor])]
        targets = {self.device[user] for user in self.users[tensor]} - {source}
        return any((tensor, target) not in self.there for target in targets)

    def intervals(self) -> list[tuple[int, float, float, int]]:
        """Rule 6 as (device, from, until, bytes)."""
        graph, held = self.problem.graph, []
        for op in self.ops:
            here = self.device[op]
            held.append((here, -1.0, math.inf, int(graph.op_persistent_bytes[op])))
            held.append((here, self.start_of[op], self.end_of[op], int(graph.op_temp_bytes[op])))
            for tensor in self.tensors_of[op]:
                if not (tensor in self.takes and graph.tensor_takes_over[tensor]):
                    size = int(graph.tensor_alloc_bytes[tensor])
                    held.append((here, self.start_of[op], self.held_until(tensor, here), size))
        for tensor, target, start, _ in self.transfers:
            until = self.held_until(tensor, target)
            held.append((target, start, until, int(graph.tensor_bytes[tensor])))
        return held

    def held_until(self, tensor: int, where: int) -> float:
        """When a tensor, and all that is in its buffer there, is needed no more."""
        producer = self.problem.graph.tensor_producer
        until = [self.end_of[user] for user in self.users[tensor] if self.device[user] == where]
        if self.device[int(producer[tensor])] == where:
            until += [self.end_of[int(producer[tensor])]]
            until += [x[3] for x in self.transfers if x[0] == tensor]
            if self.problem.graph.tensor_shares[tensor] == tensor:
                until.append(math.inf)
        inside = [other for other, source in self.takes.items() if source == tensor]
        there = [other for other in inside if self.device[int(producer[other])] == where]
        return max(until + [self.held_until(other, where) for other in there])

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

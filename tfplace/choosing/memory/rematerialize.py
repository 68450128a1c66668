"""Runs a device's ops in a known sequence under a limit of memory; what it drops, it makes again.

Dynamic tensor rematerialization (Kirisame et al., ICLR 2021), with what is known here ahead: when
each tensor is needed next. Where an op finds no room, the tensor is dropped that costs least to
make again for the bytes that it takes and the time until it is needed. Just before it is needed a
copy of its op runs, and before that copies of what that op reads, as far as it is gone, too.

A tensor of a GPU may wait in its host's memory instead (Rhu et al., MICRO 2016): it is sent there
as soon as it is made, which costs nothing as long as the link is free, and comes back in time.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from graphs.op_graph import BoolArray, FloatArray, IntArray
from graphs.problem import Problem
from tfplace.simulation.schedule import Schedule

ORIGINAL = -1
"""Stands for the op itself, where a number names one of its copies."""


@dataclasses.dataclass(frozen=True)
class Copy:
    """An op that runs once more; or one on the host that hands back what that op has made.

    Attributes:
      op: which one.
      reads: {tensor: the copy that it reads it of}; those that are left out, of the op itself.
      after: the op behind which it waits, so that it doesn't run too early; -1 for none.
      before: the op that reads it, or what is made of it: it runs just before that.
      tensor, host: what is handed back, and the device where it waits; -1 where the op runs again.
    """

    op: int
    reads: Mapping[int, int]
    after: int
    before: int = -1
    tensor: int = -1
    host: int = -1


@dataclasses.dataclass(frozen=True)
class CopyPlan:
    """What is made again on all devices.

    Attributes:
      copies: [C], each reads only of those before it.
      reads: {op: {tensor: the copy that it reads it of}} of the ops that were there before.
    """

    copies: tuple[Copy, ...] = ()
    reads: Mapping[int, Mapping[int, int]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Weights:
    """By which a tensor to drop is chosen: cost ** a / (bytes ** b * seconds until needed ** c).

    Attributes:
      cost, size, wait: a, b and c.
      sends: whether tensors may wait on the host.
    """

    cost: float = 1.0
    size: float = 1.0
    wait: float = 1.0
    sends: bool = False


MOST_OPS = 100
"""To make one tensor again; what needs more is not dropped."""
LONG_AGO = 64
"""After so many tensors were dropped, it is asked anew what one costs."""
LINK_SHARE = 0.1
"""A second of a link costs so much of one of a device: what is very cheap to make is made again."""
AHEAD = 1.5
"""Times its way a tensor begins to come back before it is needed."""
TINY = 1e-5
"""Of the limit: what takes less is kept. A shape costs nothing to make again while its tensor is
there, and all of that tensor later."""


class NoRoomError(Exception):
    """What an op needs at once takes more than the limit."""


@dataclasses.dataclass(frozen=True)
class MayChange:
    """What a rewrite may touch.

    Attributes:
      repeat: bool[N] ops that may run a second time.
      hold: bool[N] ops that a copy may wait for.
      body: i4[N] ops with one number stand in one body; a copy and what it waits for have to.
        -1 for ops that may not read a copy.
      send: bool[T] tensors that may wait on a host; None for none.
    """

    repeat: BoolArray
    hold: BoolArray
    body: IntArray
    send: BoolArray | None = None


def host_of(problem: Problem, device: int) -> int:
    """The CPU of a GPU's host, which holds what the GPU has no room for; -1 for none."""
    types, tasks = problem.device_types, problem.device_tasks
    same = (n for n, kind in enumerate(types) if kind == "CPU" and tasks[n] == tasks[device])
    return next(same, -1) if types[device] == "GPU" else -1


def rematerialized(
    problem: Problem,
    schedule: Schedule,
    device: int,
    limit_bytes: float,
    may: MayChange,
    weights: Weights = Weights(),
    others: CopyPlan = CopyPlan(),
    foreseen: CopyPlan = CopyPlan(),
) -> CopyPlan:
    """What a device drops and makes again to stay below a limit.

    Args:
      schedule: when its ops start; the device runs them one after the other in that sequence.
      limit_bytes: of all that it holds at once.
      weights: by which is chosen what is dropped.
      others: of other devices, which the plan has, too.
      foreseen: an earlier plan of this kind: what its copies read is kept for them, if there is
        room, so that one op runs again where else a chain would.

    Raises:
      NoRoomError: that is too little for any plan that is found so.
    """
    run = _Run(problem, schedule, device, limit_bytes, may, weights, others)
    run.foresee(foreseen, schedule.op_end)
    return run.plan()


class _Run:
    """One device's ops, one after the other, with what is held meanwhile.

    A tensor lies in one buffer; an alias in another tensor's, which it keeps. What adds up terms
    that TensorFlow adds at once keeps the buffers of all of them.
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        device: int,
        limit_bytes: float,
        may: MayChange,
        weights: Weights,
        others: CopyPlan,
    ) -> None:
        graph = problem.graph
        self.graph, self.may, self.weights, self.limit = graph, may, weights, limit_bytes
        self.shares, self.device = schedule.shares, schedule.device_of_op
        here = np.flatnonzero(self.device == device)
        order = np.lexsort((here, schedule.op_end[here], schedule.op_start[here]))
        self.ops: list[int] = here[order].tolist()
        self.place = {op: place for place, op in enumerate(self.ops)}
        self.start: list[float] = schedule.op_start.tolist()
        self.seconds: list[float] = problem.op_seconds[:, device].tolist()
        self.alloc: list[int] = graph.tensor_alloc_bytes.tolist()
        self.temp: list[int] = graph.op_temp_bytes.tolist()
        self.takes_over: list[bool] = graph.tensor_takes_over.tolist()
        self.producer: list[int] = graph.tensor_producer.tolist()
        self.end_seconds = float(schedule.op_end.max(initial=0.0))
        self._uses(schedule, device)
        self.copies, self.reads = list(others.copies), dict(others.reads)
        self.most_copies = len(self.copies) + len(self.ops)
        self.made_by: dict[int, int] = {}  # tensor that is there: its copy, or ORIGINAL
        self.buffers: dict[int, tuple[int, ...]] = {}  # tensor that is there: what it lies in
        self.inside: dict[int, set[int]] = {}  # buffer: the tensors in it
        self.bytes: dict[int, int] = {}
        self.needed: dict[int, float] = {}  # dropped, or read by what is: when it is needed again
        self.locked = Counter[int]()
        self.held = int(graph.op_persistent_bytes[here].sum())
        self.now, self.at, self.num_dropped = 0.0, 0, 0
        self.last_cost: dict[int, tuple[float, int]] = {}  # of a buffer, and when that was asked
        self.last: dict[int, int] = {}  # of each body, of what copies may wait for
        self.host = host_of(problem, device) if weights.sends and may.send is not None else -1
        self.sent: dict[int, int] = {}  # tensor on the host: of which copy, or ORIGINAL
        self.made_at: dict[int, float] = {}
        self.sending_until = 0.0
        self.coming: list[tuple[float, int]] | None = []  # when which begins to; None: not known
        ways = [(device, self.host), (self.host, device)] if self.host >= 0 else []
        latency, rate = problem.link_latency, problem.link_bytes_per_second
        self.ways = [(latency[way] + graph.tensor_bytes / rate[way]).tolist() for way in ways]

    def _uses(self, schedule: Schedule, device: int) -> None:
        """Who reads what here, and until when a tensor is held for others' sake."""
        graph, size = self.graph, self.graph.num_tensors
        self.inputs: dict[int, list[int]] = {op: [] for op in self.ops}
        self.outputs: dict[int, list[int]] = {op: [] for op in self.ops}
        self.readers: dict[int, list[int]] = {}
        for tensor in np.flatnonzero(self.device[graph.tensor_producer] == device).tolist():
            self.outputs[self.producer[tensor]].append(tensor)
        local = self.device[graph.use_op] == device
        for tensor, op in zip(
            graph.use_tensor[local].tolist(), graph.use_op[local].tolist(), strict=True
        ):
            self.inputs[op].append(tensor)
            self.readers.setdefault(tensor, []).append(op)
        self.all_readers = {tensor: list(ops) for tensor, ops in self.readers.items()}
        for readers in self.readers.values():
            readers.sort(key=self.place.__getitem__, reverse=True)  # the next one is the last
        self.held_until = np.zeros(size)
        moved = schedule.transfers
        np.maximum.at(self.held_until, moved.tensor, moved.arrival)
        self.copy_bytes: list[int] = graph.tensor_bytes.tolist()
        fixed = (self.may.body[graph.use_op] < 0) & local
        np.maximum.at(
            self.held_until, graph.use_tensor[fixed], schedule.op_end[graph.use_op[fixed]]
        )
        self.is_kept: list[bool] = (self.shares == np.arange(size)).tolist()

    def foresee(self, plan: CopyPlan, op_end: FloatArray) -> None:
        """Takes what a plan's copies read as needed until they run."""
        when = 0.0
        for copy in plan.copies:
            when = when if copy.after < 0 else float(np.nextafter(op_end[copy.after], np.inf))
            for tensor in self.inputs.get(copy.op, ()):
                self.needed[tensor] = max(self.needed.get(tensor, 0.0), when)

    def plan(self) -> CopyPlan:
        """Runs them."""
        for at, op in enumerate(self.ops):
            self.at, self.now = at, self.start[op]
            self._call_back()
            self._run(op)
        return CopyPlan(tuple(self.copies), self.reads)

    def _run(self, op: int) -> None:
        inputs = self.inputs[op]
        for tensor in inputs:
            self._there(tensor)
            self.locked[tensor] += 1
        reads = {t: self.made_by[t] for t in inputs if self.made_by[t] != ORIGINAL}
        if reads:
            self.reads[op] = reads
        resolved = {t: int(self.shares[t]) for t in self.outputs[op]}
        self._make(op, self.outputs[op], resolved, ORIGINAL)
        for tensor in inputs:
            self.locked[tensor] -= 1
            self.readers[tensor].pop()  # they are read in the sequence of the ops
        for tensor in (*inputs, *self.outputs[op]):
            self._free_unless_needed(tensor)
        if self.may.hold[op]:
            self.last[int(self.may.body[op])] = op

    def _make(self, op: int, wanted: Iterable[int], shares: Mapping[int, int], copy: int) -> None:
        """Allocates an op's outputs; those that are not wanted are gone at its end."""
        need = sum(self._new_bytes(t, shares[t]) for t in self.outputs[op]) + self.temp[op]
        self._make_room(need)
        for tensor in wanted:
            shared, new = shares[tensor], self._new_bytes(tensor, shares[tensor])
            lies_in: tuple[int, ...] = ()
            if 0 <= shared != tensor and shared in self.buffers:
                lies_in = self.buffers[shared]
                # A constant, or a variable's value, is never overwritten.
                is_held = any(self.bytes[buffer] for buffer in lies_in)
                if self.takes_over[tensor] and shared in self.inputs[op] and is_held:
                    self._drop(shared, is_overwritten=True)
            if new or not lies_in:
                number = len(self.bytes)
                self.bytes[number], self.inside[number] = new, set()
                self.held += new
                lies_in = (*lies_in, number)
            for buffer in lies_in:
                self.inside[buffer].add(tensor)
            self.buffers[tensor], self.made_by[tensor] = lies_in, copy
            self.made_at[tensor] = self.now + self.seconds[op]

    def _new_bytes(self, tensor: int, shared: int) -> int:
        return 0 if self.takes_over[tensor] and 0 <= shared != tensor else self.alloc[tensor]

    def _next(self, tensor: int) -> float:
        """When a tensor is read next, by what is there or by what has to be made again."""
        readers = self.readers.get(tensor)
        own = self.start[readers[-1]] if readers else np.inf
        return min(own, self.needed[tensor]) if self._is_needed(tensor) else own

    def _free_unless_needed(self, tensor: int) -> None:
        if tensor not in self.buffers or self.locked[tensor] or self.is_kept[tensor]:
            return
        if self.held_until[tensor] > self.now and self.made_by[tensor] == ORIGINAL:
            return
        if not any(self.bytes[buffer] for buffer in self.buffers[tensor]):
            return  # a variable's value: it costs nothing to keep, and can't be made again
        if not self.readers.get(tensor) and not self._is_needed(tensor):
            self._drop(tensor)

    def _is_needed(self, tensor: int) -> bool:
        """Whether something that was dropped, and is read again, is made of it."""
        if self.needed.get(tensor, np.inf) <= self.now:
            self.needed[tensor] = self._needed_by_dropped(tensor)
        return self.needed.get(tensor, np.inf) < np.inf

    def _needed_by_dropped(self, tensor: int) -> float:
        when, todo, seen = np.inf, [tensor], {tensor}
        while todo:
            for op in self.all_readers.get(todo.pop(), ()):
                for made in self.outputs[op]:
                    if made in seen or made in self.buffers or made in self.sent:
                        continue
                    seen.add(made)
                    readers = self.readers.get(made)
                    if readers and self.place[op] < self.at:
                        when = min(when, self.start[readers[-1]])
                    if made in self.needed:
                        todo.append(made)
        return when

    def _drop(self, tensor: int, is_overwritten: bool = False) -> None:
        for buffer in self.buffers.pop(tensor):
            inside = self.inside[buffer]
            inside.discard(tensor)
            if not inside and not is_overwritten:
                self.held -= self.bytes[buffer]
                del self.inside[buffer]
        del self.made_by[tensor]

    def _there(self, tensor: int) -> None:
        """Makes a tensor be there: a received one arrives, one that was dropped is made again.

        What an op reads stays until its copy has run, while the rest of it is made.
        """
        if tensor in self.buffers:
            return
        if self.producer[tensor] not in self.outputs or tensor in self.sent:
            self._receive(tensor)
            return
        todo: list[tuple[int, list[int]]] = [(self.producer[tensor], [])]
        while todo:
            op, kept = todo[-1]
            if not self.may.repeat[op]:
                raise NoRoomError
            waits_for = None
            for each in self.inputs[op][len(kept) :]:
                if each not in self.buffers:
                    if self.producer[each] in self.outputs and each not in self.sent:
                        waits_for = self.producer[each]
                        break
                    self._receive(each)
                self.locked[each] += 1
                kept.append(each)
            if waits_for is not None:
                todo.append((waits_for, []))
                continue
            self._again(op)
            for each in kept:
                self.locked[each] -= 1
            for each in kept:
                self._free_unless_needed(each)
            todo.pop()

    def _receive(self, tensor: int) -> None:
        self._make_room(self.copy_bytes[tensor])
        number = len(self.bytes)
        self.bytes[number], self.inside[number] = self.copy_bytes[tensor], {tensor}
        self.held += self.copy_bytes[tensor]
        self.buffers[tensor], self.made_by[tensor] = (number,), ORIGINAL
        if tensor in self.sent:
            op, source = self.producer[tensor], self.sent[tensor]
            reads = {} if source == ORIGINAL else {tensor: source}
            last = self.last.get(int(self.may.body[op]), -1)
            self.coming = None
            self.made_by[tensor] = self._copied(
                Copy(op, reads, last, self.ops[self.at], tensor, self.host)
            )

    def _call_back(self) -> None:
        """Lets come back what is needed soon, as far as there is room."""
        if self.coming is None:
            away = [(self._next(t), t) for t in self.sent if t not in self.buffers]
            begin, self.coming = np.inf, []
            for when, tensor in sorted(away, reverse=True):
                if when < np.inf:
                    begin = min(begin, when) - AHEAD * self.ways[1][tensor]
                    self.coming.append((begin, tensor))
        while self.coming and self.coming[-1][0] <= self.now:
            tensor = self.coming[-1][1]
            if self.held + self.copy_bytes[tensor] > self.limit:
                break
            rest = self.coming[:-1]
            self._receive(tensor)
            self.coming = rest

    def _again(self, op: int) -> None:
        """Runs a copy of an op whose inputs are there, and locked."""
        made = [t for t in self.outputs[op] if t not in self.buffers]
        shares = {t: self._shared_again(t, op) for t in self.outputs[op]}
        reads = {t: self.made_by[t] for t in self.inputs[op] if self.made_by[t] != ORIGINAL}
        last = self.last.get(int(self.may.body[op]), -1)
        is_behind = any(self.copies[copy].after == last for copy in reads.values())
        number = self._copied(Copy(op, reads, -1 if is_behind else last, self.ops[self.at]))
        self._make(op, made, shares, number)
        for tensor in made:
            if self._next(tensor) == np.inf:
                self._drop(tensor)

    def _copied(self, copy: Copy) -> int:
        """The number of one copy more."""
        if len(self.copies) >= self.most_copies:  # so low a limit that all is made again and again
            raise NoRoomError
        self.copies.append(copy)
        return len(self.copies) - 1

    def _shared_again(self, tensor: int, op: int) -> int:
        """Whose buffer a copy's output is: by what the graph says, of what is there now."""
        shared = int(self.graph.tensor_shares[tensor])
        if shared < 0 or shared == tensor or not self.takes_over[tensor]:
            return shared if shared != tensor else -1
        is_last = self.locked[shared] == 1 and not self.readers.get(shared)
        alone = is_last and all(self.inside[b] == {shared} for b in self.buffers[shared])
        return shared if alone and self.producer[shared] in self.outputs else -1

    def _make_room(self, need: int) -> None:
        while self.held + need > self.limit:
            victim = self._victim()
            if victim is None:
                raise NoRoomError
            self._evict(victim)

    def _evict(self, tensors: list[int]) -> None:
        if self._seconds_to_send(tensors) < self._cost(tensors):
            sent = next(each for each in tensors if self._next(each) < np.inf)
            if sent not in self.sent:
                self.sending_until = self._sent_at(sent)
                self.sent[sent] = self.made_by[sent]
            self.coming = None
        for tensor in tensors:
            when = np.inf if tensor in self.sent else self._next(tensor)
            _, sources = self._made_of([tensor], set(tensors))
            for source in sources if when < np.inf else ():
                self._is_needed(source)  # what is not any more, is forgotten
                self.needed[source] = min(self.needed.get(source, np.inf), when)
            self._drop(tensor)

    def _made_of(self, tensors: list[int], gone: set[int]) -> tuple[list[int], set[int]]:
        """The ops that run again to make tensors, once these are gone, and all that they read."""
        ops, sources, todo = dict[int, None](), set[int](), list(tensors)
        while todo and len(ops) <= MOST_OPS:
            op = self.producer[todo.pop()]
            if op not in ops:
                ops[op] = None
                inputs = self.inputs.get(op, ())
                sources.update(inputs)
                away = (t for t in inputs if t not in self.buffers or t in gone)
                todo += [t for t in away if t not in self.sent]
        return list(ops), sources

    def _may_send(self, tensor: int) -> bool:
        return self.host >= 0 and self.may.send is not None and bool(self.may.send[tensor])

    def _sent_at(self, tensor: int) -> float:
        """When it would be on the host: it goes there when it is made, behind those before it."""
        return max(self.made_at[tensor], self.sending_until) + self.ways[0][tensor]

    def _seconds_to_send(self, tensors: list[int]) -> float:
        """What it costs to let the one that is needed again wait on the host; inf if it can't."""
        needed = [each for each in tensors if self._next(each) < np.inf]
        if len(needed) != 1 or not self._may_send(needed[0]):
            return np.inf
        way = self.ways[1][needed[0]]
        late = max(self.now + way - self._next(needed[0]), 0.0)
        if needed[0] not in self.sent:
            late += max(self._sent_at(needed[0]) - self.now, 0.0)
            way += self.ways[0][needed[0]]
        return late + LINK_SHARE * way

    def _cost(self, tensors: list[int]) -> float:
        """Seconds to make them again, with all that isn't there either; inf where that is much."""
        ops, _ = self._made_of(tensors, set(tensors))
        if len(ops) > MOST_OPS or not all(op in self.outputs and self.may.repeat[op] for op in ops):
            return np.inf
        return sum(self.seconds[op] for op in ops)

    def _victim(self) -> list[int] | None:
        """The tensors of the buffer that is best dropped; None where nothing can be.

        What it costs to make a tensor again depends on what else is gone, and takes a walk: so it
        is walked only for those that look best, by what they cost when that was last asked.
        """
        self.num_dropped += 1
        candidates, weights = [], self.weights
        for buffer, inside in self.inside.items():
            size = self.bytes[buffer]
            if size <= TINY * self.limit or not all(map(self._may_drop, inside)):
                continue
            wait = max(min(map(self._next, inside)) - self.now, 1e-9)
            if wait == np.inf:
                return list(inside)
            least, asked = self.last_cost.get(buffer, (-1.0, -LONG_AGO))
            if self.num_dropped - asked >= LONG_AGO:
                least = sum(self.seconds[op] for op in {self.producer[each] for each in inside})
                least = min(least, self._seconds_to_send(list(inside)))
            per_cost = size**weights.size * min(wait, self.end_seconds) ** weights.wait
            candidates.append((least**weights.cost / per_cost, per_cost, buffer))
        best, chosen = np.inf, None
        for least, per_cost, buffer in sorted(candidates):
            if least >= best:
                break
            tensors = list(self.inside[buffer])
            cost = min(self._cost(tensors), self._seconds_to_send(tensors))
            self.last_cost[buffer] = cost, self.num_dropped
            score = cost**weights.cost / per_cost
            if score < best:
                best, chosen = score, list(self.inside[buffer])
        return chosen

    def _may_drop(self, tensor: int) -> bool:
        return (
            not self.locked[tensor]
            and not self.is_kept[tensor]
            and self.producer[tensor] in self.outputs
            and bool(self.may.repeat[self.producer[tensor]] or self._may_send(tensor))
            and self.held_until[tensor] <= self.now
        )

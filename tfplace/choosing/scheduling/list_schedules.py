"""Finds an order for a placed problem: what the simulator says of several is what decides.

Wanted schedules come from the simulator itself, with the ready op of the least rank started first:
by the longest path to the end, or shard by shard. They become control edges, with variables read
just in time; the edged problem is simulated by the rules as they are, and the best is kept if it
is better than the placement without edges.
"""

import dataclasses
import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graphs.graph_edges import row_starts
from graphs.op_graph import FloatArray, IntArray, LongArray
from graphs.problem import Infeasible, Outcome, Problem
from tfplace.choosing.scheduling.anchors import Anchors, Bools, anchors_of
from tfplace.choosing.scheduling.edges import (
    NO_EDGES,
    EdgedProblem,
    OrderEdges,
    order_edges,
    with_order_edges,
)
from tfplace.choosing.scheduling.just_in_time_reads import late_read_edges, with_free_reads
from tfplace.choosing.scheduling.sequence import ready_seconds, sequence_edges
from tfplace.grouping.copies import is_split, shard_of_op
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulated import simulated
from tfplace.simulation.simulator import Simulator

Ranks = Callable[[Problem, IntArray], IntArray]
AHEAD_SHARES = (0.0, 0.003, 0.008)
"""How much earlier than at the last moment a variable is sent, in shares of the step's time."""
RELAYED_SHARES = (0.02, 0.035, 0.06)
"""The same where it is handed on from shard to shard, over several hosts: before it is needed."""
WORTH = 1e-3
"""A step that is shorter by less than this share is not worth edges."""


@dataclasses.dataclass(frozen=True)
class Ordered:
    """A placement and the order that was found for it.

    Attributes:
      problem: without these edges.
      edges: in the problem's own numbers; none where no order beats first come, first served.
      device_of_op: i4[N] the placement, in the problem's own numbers.
      outcome: what the placement takes with them.
      without: what it takes without.
      reads: of the edges those that hold reads back.
      rank: i4[N] what the other edges keep to; None where there are no others.
    """

    problem: Problem
    edges: OrderEdges
    device_of_op: IntArray
    outcome: Outcome
    without: Outcome
    reads: OrderEdges = NO_EDGES
    rank: IntArray | None = None

    def edged(self) -> EdgedProblem:
        """The problem with these edges, made anew: of a large one it takes 0.1 GB and more."""
        return with_order_edges(self.problem, self.edges)


def ordered(
    problem: Problem,
    device_of_op: IntArray,
    anchors: Anchors | None = None,
    writable: Callable[[OrderEdges], OrderEdges] = lambda edges: edges,
    more_ranks: Sequence[IntArray] = (),
    until: float = math.inf,
) -> Ordered:
    """The best of several orders for a placement, first come, first served among them.

    Args:
      problem: without order edges.
      device_of_op: i4[N] a placement that keeps to pins, kernels and colocation.
      anchors: where edges may begin and end; None for any ops that take time.
      writable: takes out the edges that can't be written.
      more_ranks: i4[N] each, tried as well: what the placement was searched with.
      until: on time.monotonic; after the first, no order is tried that would end later, if it
        takes as long as those before.
    """
    anchors = anchors or anchors_of(problem)
    without = simulated(problem, device_of_op).outcome
    best = Ordered(problem, NO_EDGES, device_of_op, without, without)
    if time.monotonic() >= until:
        return best
    ranks = [None if make is None else make(problem, device_of_op) for make in RANKS]
    delayed = weights_last(problem, device_of_op)
    ranks += [*([] if delayed is None else [delayed]), *more_ranks]
    last, longest = time.monotonic(), 0.0
    for reads, rank, proposed in _proposed(
        problem, device_of_op, anchors, ranks, without.step_seconds
    ):
        if time.monotonic() >= until:
            break
        edges = writable(proposed)
        edged = with_order_edges(problem, edges)
        outcome = simulated(edged.problem, edged.renumbered(device_of_op)).outcome
        if _is_better(outcome, best.outcome):
            best = Ordered(problem, edges, device_of_op, outcome, without, reads, rank)
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
        if now + longest > until:
            break
    return best


def _proposed(
    problem: Problem,
    device_of_op: IntArray,
    anchors: Anchors,
    ranks: Sequence[IntArray | None],
    step_seconds: float,
) -> Iterator[tuple[OrderEdges, IntArray | None, OrderEdges]]:
    """Held reads, a rank, and the edges of both."""
    if not np.isfinite(step_seconds):
        return
    is_relayed = bool(anchors.is_relay.any())
    if is_split(problem) and not is_relayed:
        yield from _in_flight(problem, device_of_op, anchors)
    free = with_free_reads(problem, anchors)
    for rank in ranks:
        ideal = _schedule(free, device_of_op, rank)
        for share in (None, *(RELAYED_SHARES if is_relayed else AHEAD_SHARES)):
            reads = NO_EDGES
            if share is not None:
                reads = late_read_edges(problem, ideal, anchors, share * step_seconds)
                if not len(reads):
                    break
            try:
                held = with_order_edges(problem, reads)
            except ValueError:  # reads that wait for one another through what else uses them
                continue
            if rank is None:
                yield reads, None, reads
            else:
                yield reads, rank, _joined(reads, _sequence(held, device_of_op, rank, anchors))
    if is_split(problem) and is_relayed:
        yield from _in_flight(problem, device_of_op, anchors)


def _in_flight(
    problem: Problem, device_of_op: IntArray, anchors: Anchors
) -> Iterator[tuple[OrderEdges, IntArray | None, OrderEdges]]:
    """Shard by shard as 1F1B does; in a pipeline also with the gradients of weights put off."""
    first, delayed = by_shard(problem, device_of_op), weights_last(problem, device_of_op)
    schedule = _schedule(problem, device_of_op, first)
    proposals = [(first, in_flight_edges(problem, schedule, anchors), 1)]
    if delayed is not None:
        schedule = _schedule(problem, device_of_op, delayed)
        for window in WINDOWS:
            proposals.append((delayed, in_flight_edges(problem, schedule, anchors, window), 1))
        shard, (producer, user, _) = shard_of_op(problem), problem.graph.op_edges()
        leads = np.isin(range(problem.num_ops), producer[shard[producer] == shard[user]])
        for halfway, late in IN_HALVES:
            few = _joined(
                in_flight_edges(problem, schedule, anchors, halfway, leads),
                in_flight_edges(problem, schedule, anchors, late),
            )
            ahead = np.array([halfway(*stage) for stage in _stages(problem, schedule, anchors)])
            in_turn = weights_last(problem, device_of_op, ahead)
            rounds = max(MOST_OPS_OF_ROUNDS // problem.num_ops, 1)
            proposals += [(rank, few, rounds) for rank in (delayed, in_turn) if rank is not None]
    for rank, few, rounds in proposals:
        for _ in range(rounds if len(few) else 0):
            try:
                held = with_order_edges(problem, few)
            except ValueError:  # shards that wait for one another somewhere else
                break
            yield NO_EDGES, rank, _joined(few, _sequence(held, device_of_op, rank, anchors))
            if rounds == 1 or not len(early := _too_early(held, device_of_op, rank, anchors)):
                break
            few = _joined(few, early)


def _too_early(
    held: EdgedProblem, device_of_op: IntArray, rank: IntArray, anchors: Anchors
) -> OrderEdges:
    """Of each device the first op that keeps one of less rank waiting: it goes after that one."""
    device, ranks = held.renumbered(device_of_op), held.renumbered(rank)
    wanted = _schedule(held.problem, device, ranks)
    ready = ready_seconds(held.problem, wanted, np.zeros(len(device), dtype=bool))
    body, ops = anchors.body_of_op[held.op_at], np.flatnonzero(anchors.may_hold[held.op_at])
    ops = ops[np.lexsort((ops, wanted.op_start[ops], device[ops]))]
    one, then = ops[:-1], ops[1:]
    waits = (device[then] == device[one]) & (body[then] == body[one]) & (ranks[then] < ranks[one])
    waits &= (wanted.op_start[one] < ready[then]) & (ready[then] < wanted.op_end[one])
    _, first = np.unique(device[one[waits]], return_index=True)
    before, after = held.op_at[then[waits][first]], held.op_at[one[waits][first]]
    return order_edges(before.tolist(), after.tolist())


def _schedule(problem: Problem, device_of_op: IntArray, rank: IntArray | None) -> Schedule:
    """What happens if the ready op of the least rank starts first."""
    ranked = dataclasses.replace(problem, start_rank=rank, executor=None)
    return Simulator(ranked, num_threads=1).schedule(device_of_op)


def _sequence(
    held: EdgedProblem, device_of_op: IntArray, rank: IntArray, anchors: Anchors
) -> OrderEdges:
    """The edges that keep to the ranks while reads are held back, in the problem's own numbers."""
    wanted = _schedule(held.problem, held.renumbered(device_of_op), held.renumbered(rank))
    there = Anchors(*(values[held.op_at] for values in dataclasses.astuple(anchors)))
    edges = sequence_edges(held.problem, wanted, there)
    return OrderEdges(held.op_at[edges.before], held.op_at[edges.after])


def _joined(one: OrderEdges, other: OrderEdges) -> OrderEdges:
    return order_edges(
        [*one.before.tolist(), *other.before.tolist()], [*one.after.tolist(), *other.after.tolist()]
    )


def _is_better(one: Outcome, other: Outcome) -> bool:
    """Whether it fits where the other doesn't, or is clearly shorter; of two that don't fit, less
    memory counts."""
    one_fits, other_fits = (not isinstance(outcome, Infeasible) for outcome in (one, other))
    if one_fits != other_fits:
        return one_fits
    if not one_fits:
        return max(one.peak_bytes, default=0) < max(other.peak_bytes, default=0)
    return one.step_seconds < other.step_seconds * (1.0 - WORTH)


# Edges that bound how many shards a device has begun and not yet ended, as 1F1B does.
#
# A device that is never idle goes forward with all shards before it gets the first one back, and
# holds the activations of all. In a pipeline of K stages the i-th, from 0, has enough to do with
# K - i of them. Where the gradients of weights are put off, a shard ends later, and more of them
# leave fewer gaps (zero bubble, Qi et al. 2024). Of orders that take equally long the first counts.


Window = Callable[[int, int], int]
"""Most shards begun and not ended on a device, by how many of K come from it on in turn, and K."""
WINDOWS: Sequence[Window] = (lambda rest, _: rest, lambda _, k: k, lambda _, k: k + 1)
IN_HALVES: Sequence[tuple[Window, Window]] = (
    (lambda rest, _: rest, lambda rest, k: 2 * k - rest),
    (lambda rest, k: min(2 * rest - 1, k), lambda rest, k: 2 * k - min(2 * rest - 1, k)),
    (lambda rest, _: 2 * rest - 1, lambda rest, k: 4 * k - 2 * rest + 1),
)
"""Of shards without all gradients of inputs, and of weights: each frees half of what one holds."""
MOST_OPS_OF_ROUNDS = 10_000
"""Ops that are simulated to hold back, round by round, what begins a moment too early."""


def in_flight_edges(
    problem: Problem,
    schedule: Schedule,
    anchors: Anchors,
    window: Window = WINDOWS[0],
    ends: Bools | None = None,
) -> OrderEdges:
    """The edges; none where no device works on several shards.

    Args:
      problem: of a split step.
      schedule: shard by shard: its first shard says which device comes when.
      ends: bool[N] a shard has ended when the last of these has; None for all.
    """
    shard, device = shard_of_op(problem), schedule.device_of_op
    works = anchors.is_real & (shard >= 0) & (schedule.op_end > schedule.op_start)
    enters = works & ~_follows_its_own(problem, shard, device, works)
    before: list[int] = []
    after: list[int] = []
    ending = works & anchors.may_hold & (True if ends is None else ends)
    for here, stage in enumerate(_stages(problem, schedule, anchors)):
        ops = np.flatnonzero(ending & (device == here))
        ops = ops[np.argsort(schedule.op_end[ops], kind="stable")]
        last = dict(zip(shard[ops].tolist(), ops.tolist(), strict=True))  # of each shard
        shards = sorted(last)
        for first, then in zip(shards, shards[window(*stage) :], strict=False):
            entries = np.flatnonzero(enters & (device == here) & (shard == then))
            same_body = anchors.body_of_op[entries] == anchors.body_of_op[last[first]]
            before += [last[first]] * int(same_body.sum())
            after += entries[same_body].tolist()
    return order_edges(before, after)


def _stages(problem: Problem, schedule: Schedule, anchors: Anchors) -> list[tuple[int, int]]:
    """[D] what a Window is asked by; (0, K) where no shard works."""
    works = anchors.is_real & (shard_of_op(problem) >= 0) & (schedule.op_end > schedule.op_start)
    begins = np.full(problem.num_devices, np.inf)
    np.minimum.at(begins, schedule.device_of_op[works], schedule.op_start[works])
    used = begins[np.isfinite(begins)]
    return [(int((used >= each).sum()), len(used)) for each in begins.tolist()]


def _follows_its_own(
    problem: Problem, shard: np.ndarray, device: np.ndarray, works: np.ndarray
) -> np.ndarray:
    """bool[N]: ops behind one that works for the same shard on the same device."""
    producer, user, _ = problem.graph.op_edges()
    near = (shard[producer] == shard[user]) & (device[producer] == device[user])
    producer, user = producer[near], user[near]
    order = np.argsort(user, kind="stable")  # ops are in a topological order
    works_here, follows = works.tolist(), [False] * problem.num_ops
    for source, target in zip(producer[order].tolist(), user[order].tolist(), strict=True):
        follows[target] = follows[target] or works_here[source] or follows[source]
    return np.array(follows)


def by_longest_path(problem: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: the op with the longest path to the end goes first; of equals the lowest."""
    return _numbered(np.argsort(-path_to_end(problem, device_of_op), kind="stable"))


def by_shard(problem: Problem, device_of_op: IntArray) -> IntArray:
    """i4[N]: whole ops first, then shard by shard, the first one to its end before the next.

    So a device holds the activations of one shard at a time, and a stage of a pipeline works
    backward on a shard as soon as it can, before it goes forward with a later one (1F1B).
    """
    return _numbered(np.lexsort((path_to_end(problem, device_of_op), shard_of_op(problem))))


ALL_ON_ONE = 0.9
"""A shard that has so much of its work on one device passes through no stages."""


def weights_last(
    problem: Problem, device_of_op: IntArray, ahead: LongArray | None = None
) -> IntArray | None:
    """i4[N]: what other stages wait for first; None where the step is no pipeline.

    Of a shard's ops those go first that work backward and that another device waits for (gradients
    of inputs), then those that work forward, last those that nothing but sums and updates waits
    for (gradients of weights). Which is which is read from the graph, not from op types: an op is
    waited for if something behind it works for a shard elsewhere, and works backward if something
    before it has left its device and come back. Where `ahead` i8[D] says by how many shards a
    device works forward before one comes back, forward and backward take turns.
    """
    shard, seconds = shard_of_op(problem), problem.op_seconds[range(problem.num_ops), device_of_op]
    works = (shard >= 0) & (seconds > 0)
    share = np.zeros((shard.max(initial=0) + 1, problem.num_devices))
    np.add.at(share, (shard[works], device_of_op[works]), seconds[works])
    if (share.max(axis=1) >= ALL_ON_ONE * share.sum(axis=1)).all():
        return None
    producer, user, _ = problem.graph.op_edges()
    order = np.argsort(user, kind="stable")  # ops are in a topological order
    edges = list(zip(producer[order].tolist(), user[order].tolist(), strict=True))
    bit = [1 << device for device in device_of_op.tolist()]  # sets of devices, as bits of a number
    here = [own if does else 0 for own, does in zip(bit, works.tolist(), strict=True)]
    been, left = list(here), [0] * problem.num_ops
    for source, target in edges:
        left[target] |= left[source] | (been[source] & ~bit[target])
        been[target] |= been[source]
    behind = [0] * problem.num_ops
    by_producer = np.argsort(-producer, kind="stable")
    for source, target in zip(
        producer[by_producer].tolist(), user[by_producer].tolist(), strict=True
    ):
        behind[source] |= behind[target] | here[target]
    has_returned = np.array([bool(gone & own) for gone, own in zip(left, bit, strict=True)])
    is_awaited = np.array([bool(seen & ~own) for seen, own in zip(behind, bit, strict=True)])
    if not (has_returned & works).any():
        return None
    phase = np.where(is_awaited, np.where(has_returned, 0, 1), 2)
    phase[shard < 0] = -1
    path, turn = path_to_end(problem, device_of_op), phase.astype(float)
    if ahead is not None:
        forward = shard - ahead[device_of_op] + 0.5
        turn = np.select([phase == 0, phase == 1, phase == 2], [shard, forward, np.inf], -np.inf)
    return _numbered(np.lexsort((np.where(phase == 2, path, -path), shard, turn)))


def by_memory(problem: Problem, schedule: Schedule) -> IntArray:
    """i4[N]: of the ops that could run next, the one after which least is held goes first.

    What an op changes is what it allocates less what it is the last to read; of equals the one goes
    first that starts first in the schedule.
    """
    graph, num_ops = problem.graph, problem.num_ops
    producer, user, _ = graph.op_edges()
    behind: list[set[int]] = [set() for _ in range(num_ops)]
    for source, target in zip(producer.tolist(), user.tolist(), strict=True):
        behind[source].add(target)
    waits_for = np.zeros(num_ops, dtype=np.int64)
    for targets in behind:
        waits_for[list(targets)] += 1
    buffer = _buffers(schedule.shares)
    size = np.where(buffer == np.arange(len(buffer)), graph.tensor_alloc_bytes, 0).tolist()
    kept = set(np.flatnonzero(schedule.shares == np.arange(len(buffer))).tolist())
    reads: list[set[int]] = [set() for _ in range(num_ops)]
    readers: dict[int, set[int]] = {}
    for tensor, op in zip(buffer[graph.use_tensor].tolist(), graph.use_op.tolist(), strict=True):
        if size[tensor] and tensor not in kept:
            reads[op].add(tensor)
            readers.setdefault(tensor, set()).add(op)
    change = np.bincount(graph.tensor_producer, size, num_ops)  # what nobody reads is an update's
    turn = np.empty(num_ops, dtype=np.int64)
    turn[np.lexsort((np.arange(num_ops), schedule.op_end, schedule.op_start))] = range(num_ops)

    ready: list[tuple[float, int, int]] = []
    for tensor, ops in readers.items():
        if len(ops) == 1:
            change[next(iter(ops))] -= size[tensor]
    for op in np.flatnonzero(waits_for == 0).tolist():
        heapq.heappush(ready, (change[op], turn[op], op))
    sequence: dict[int, None] = {}
    while ready:
        _, _, op = heapq.heappop(ready)
        if op in sequence:
            continue  # it was noted again with a smaller change
        sequence[op] = None
        for tensor in reads[op]:
            left = readers[tensor]
            left.discard(op)
            if len(left) == 1:  # it frees the tensor
                (last,) = left
                change[last] -= size[tensor]
                if not waits_for[last]:
                    heapq.heappush(ready, (change[last], turn[last], last))
        for target in behind[op]:
            waits_for[target] -= 1
            if not waits_for[target]:
                heapq.heappush(ready, (change[target], turn[target], target))
    return _numbered(np.array([*sequence], dtype=np.int64))


def _buffers(shares: IntArray) -> LongArray:
    """i8[T]: in whose buffer each tensor lies."""
    buffer = np.where(shares < 0, np.arange(len(shares)), shares).astype(np.int64)
    while np.any(buffer[buffer] != buffer):
        buffer = buffer[buffer]
    return buffer


def path_to_end(problem: Problem, device_of_op: IntArray) -> FloatArray:
    """f8[N] seconds: the longest path from an op's start to the end, with moves on idle links."""
    graph = problem.graph
    producer, user, moved = graph.op_edges()
    source, target = device_of_op[producer], device_of_op[user]
    move = np.where(
        source == target,
        0.0,
        moved / problem.link_bytes_per_second[source, target]
        + problem.link_latency[source, target],
    )
    by_producer = np.argsort(producer, kind="stable")
    users, moves = user[by_producer].tolist(), move[by_producer].tolist()
    row = row_starts(producer, graph.num_ops).tolist()
    path = problem.op_seconds[np.arange(graph.num_ops), device_of_op].tolist()
    for op in range(graph.num_ops - 1, -1, -1):
        first, last = row[op], row[op + 1]
        rest = (path[u] + m for u, m in zip(users[first:last], moves[first:last], strict=True))
        path[op] += max(rest, default=0.0)
    return np.array(path)


def _numbered(sorted_ops: np.ndarray) -> IntArray:
    rank = np.empty(len(sorted_ops), dtype=np.int32)
    rank[sorted_ops] = np.arange(len(sorted_ops), dtype=np.int32)
    return rank


RANKS: tuple[Ranks | None, ...] = (None, by_longest_path, by_shard)

"""A smaller problem that takes about as long to run: small ops fused with what they wait for.

What a search on coarse groups asks of the simulator hardly depends on when exactly each small op
runs, but simulating them is most of the work. The fused problem keeps every transfer between
groups, all bytes and all seconds, and has a half to a fifth of the ops.

It is not exact: a chain of small ops would wait in its device's queue at each of them, a fused op
waits once (0.6 % on inception_v3, up to 17 % too quick on nmt). So a search ends on the whole
problem.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from graphs.graph_edges import row_starts
from graphs.host.compiled import compiled, compiled_part
from graphs.op_graph import FloatArray, IntArray, LongArray, OpGraph
from graphs.problem import Grouping, Problem
from tfplace.grouping.quotient import BoolArray, allowed_class, fastest_seconds, group_sums

# An op is small if it takes at most this share of all seconds, or at most as long as a transfer of
# no bytes: moving it elsewhere alone gains nothing.
SMALL_SHARE = 2e-5

# What joins a fused op takes at most this many times as long as a small op: the fused op's tensors
# are late by that much.
MAX_SMALL = 4.0

# Each round fuses what the one before has made; after three little is left to join.
NUM_ROUNDS = 3


class _Joining(NamedTuple):
    """Groups in the making. The op that others join is the leader of its group."""

    leader: LongArray  # i8[N] each op's; itself where it has joined nothing
    rank: LongArray  # i8[N] place in a topological order; its leader's is the place of a group
    taken: FloatArray  # f8[N] seconds of what joined each leader
    colocation: LongArray  # i8[N] colocation group, -1 for none
    has_others: BoolArray  # bool[N] whether anything joined


@dataclasses.dataclass(frozen=True)
class FusedProblem:
    """A problem whose ops are groups of another problem's ops.

    Attributes:
      problem: M fused ops; its makespans are close to the whole problem's.
      fused_of_op: i4[N] the fused op that each op is part of.
      heaviest: i4[M] the op of each fused op that takes longest.
    """

    problem: Problem
    fused_of_op: IntArray
    heaviest: IntArray

    def expand(self, device_of_fused: IntArray) -> IntArray:
        """i4[..., N] of placements i4[..., M]."""
        return np.ascontiguousarray(device_of_fused[..., self.fused_of_op])

    def reduce(self, device_of_op: IntArray) -> IntArray:
        """i4[..., M] of placements i4[..., N]: where the heaviest op lies."""
        return np.ascontiguousarray(device_of_op[..., self.heaviest])


def fused_problem(problem: Problem) -> FusedProblem:
    """Fuses small ops with what they wait for, then with the only op that waits for them.

    Ops are taken in a topological order by least start times. An op may join the last of its
    inputs in that order: moved to right behind it, it still comes after all of its inputs, so no
    cycle can arise. An op with a single user may join that user. Only ops that may use the same
    devices are fused, and none of different colocation groups.
    """
    problem_now = problem
    fused_of_op = np.arange(problem.num_ops, dtype=np.int32)
    for _ in range(NUM_ROUNDS):
        grouping = _joined(problem_now)
        if grouping.num_groups == problem_now.num_ops:
            break
        problem_now = _fused(problem_now, grouping)
        fused_of_op = grouping.group_of_op[fused_of_op]
    seconds = fastest_seconds(problem, problem.allowed())
    order = np.lexsort((-np.arange(problem.num_ops), seconds, fused_of_op))
    last = np.append(np.flatnonzero(np.diff(fused_of_op[order])), problem.num_ops - 1)
    return FusedProblem(problem_now, fused_of_op, order[last].astype(np.int32))


def _joined(problem: Problem) -> Grouping:
    """Groups of one round, numbered in a topological order."""
    graph = problem.graph
    allowed = problem.allowed()
    seconds = fastest_seconds(problem, allowed)
    apart = ~np.eye(problem.num_devices, dtype=bool)
    latency = float(problem.link_latency[apart].mean()) if apart.any() else 0.0
    small = max(latency, SMALL_SHARE * float(seconds.sum()))
    producer, user, _ = graph.op_edges()
    pairs = np.unique(np.stack([user, producer], axis=1), axis=0)
    user, producer = pairs[:, 0], pairs[:, 1]
    row = row_starts(user, problem.num_ops).astype(np.int32)
    start = np.zeros(problem.num_ops)
    _least_starts(row, producer, seconds, start)
    order = np.lexsort((np.arange(problem.num_ops), start)).astype(np.int64)
    rank = np.empty(problem.num_ops, dtype=np.int64)
    rank[order] = np.arange(problem.num_ops)
    state = _Joining(
        leader=np.arange(problem.num_ops, dtype=np.int64),
        rank=rank,
        taken=np.zeros(problem.num_ops),
        colocation=graph.colocation_group.astype(np.int64),
        has_others=np.zeros(problem.num_ops, dtype=bool),
    )
    kind = allowed_class(allowed).astype(np.int64)
    _join_inputs(state, order, row, producer, start, seconds, kind, small)
    by_producer = np.lexsort((user, producer))
    out_row = row_starts(producer[by_producer], problem.num_ops).astype(np.int32)
    _join_only_users(state, order, out_row, user[by_producer], seconds, kind, small)
    # Ranks of leaders are a topological order of the groups.
    _, group = np.unique(rank[state.leader], return_inverse=True)
    return Grouping(group.astype(np.int32), int(group.max()) + 1)


def _fused(problem: Problem, grouping: Grouping) -> Problem:
    """The problem whose ops are the groups, which are numbered in a topological order."""
    graph, group = problem.graph, grouping.group_of_op
    allowed = problem.allowed()
    finite = np.where(allowed, problem.op_seconds, 0.0)
    first = np.unique(group, return_index=True)[1]
    seconds = np.where(allowed[first], group_sums(finite, grouping), np.inf)
    colocation = np.full(grouping.num_groups, -1, dtype=np.int64)
    np.maximum.at(colocation, group, graph.colocation_group)
    source = group[graph.tensor_producer]
    leaves = source[graph.use_tensor] != group[graph.use_op]
    is_kept = np.zeros(graph.num_tensors, dtype=bool)
    is_kept[graph.use_tensor[leaves]] = True
    is_kept |= graph.tensor_shares == np.arange(graph.num_tensors)  # held until the step ends
    kept = np.flatnonzero(is_kept)
    kept = kept[np.argsort(source[kept], kind="stable")]
    number = np.full(graph.num_tensors, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    uses = np.stack([number[graph.use_tensor[leaves]], group[graph.use_op[leaves]]], axis=1)
    uses = np.unique(uses, axis=0)
    shares, takes, alloc = _shares_between(graph, group, is_kept)
    # What stays inside is counted as held throughout: never less than it takes.
    temp = _byte_sums(graph.op_temp_bytes, grouping)
    np.add.at(temp, source[~is_kept], alloc[~is_kept])
    fused = OpGraph(
        op_names=[graph.op_names[op] for op in first],
        op_types=[graph.op_types[op] for op in first],
        tensor_producer=source[kept].astype(np.int32),
        tensor_output=graph.tensor_output[kept],
        tensor_bytes=graph.tensor_bytes[kept],
        tensor_alloc_bytes=alloc[kept],
        tensor_shares=np.where(shares < 0, -1, number[shares])[kept].astype(np.int32),
        tensor_takes_over=takes[kept],
        tensor_shape=graph.tensor_shape[kept],
        use_tensor=uses[:, 0].astype(np.int32),
        use_op=uses[:, 1].astype(np.int32),
        op_persistent_bytes=_byte_sums(graph.op_persistent_bytes, grouping),
        op_temp_bytes=temp,
        colocation_group=colocation.astype(np.int32),
    )
    return dataclasses.replace(
        problem,
        graph=fused,
        op_seconds=seconds,
        pinned_device=np.full(grouping.num_groups, -1, dtype=np.int32),
        start_rank=_least_ranks(problem.start_rank, grouping),
    )


def _shares_between(
    graph: OpGraph, group: IntArray, is_kept: BoolArray
) -> tuple[IntArray, BoolArray, LongArray]:
    """Whose buffer each kept tensor is, whether it takes it over, and what each tensor allocates.

    What is handed on within a group to a tensor that leaves it is that tensor's own. So is what is
    taken over there where nothing else uses it; what comes from another group is taken over by a
    group of one op alone, since nothing says which of several ops runs last.
    """
    shares, takes = graph.tensor_shares.copy(), graph.tensor_takes_over.copy()
    alloc = graph.tensor_alloc_bytes.copy()
    maker = group[graph.tensor_producer]
    is_own = shares == np.arange(graph.num_tensors)
    takers = np.flatnonzero((shares >= 0) & ~is_own & takes)
    source = shares[takers]
    num_users = np.bincount(graph.use_tensor, minlength=graph.num_tensors)
    is_inside = maker[source] == maker[takers]
    is_sure = is_inside & (num_users[source] == 1) & (alloc[source] > 0) & ~is_own[source]
    alloc[takers[is_sure]] = 0
    takes[takers[is_sure]] = False
    is_alone = (np.bincount(group) == 1)[maker[takers]]
    shares[takers[~is_sure & (is_inside | ~is_alone)]] = -1
    handed = (shares >= 0) & ~is_own & is_kept & ~takes
    handed[handed] = maker[shares[handed]] == maker[handed]
    for tensor in np.flatnonzero(handed).tolist():
        owner = int(shares[tensor])
        while maker[owner] == maker[tensor]:
            if not is_kept[owner]:  # what it allocates leaves the group with the tensor
                alloc[tensor] += alloc[owner]
                alloc[owner] = 0
            if shares[owner] in (-1, owner):
                break
            owner = int(shares[owner])
        shares[tensor] = owner
        if maker[owner] == maker[tensor] and not is_kept[owner]:
            shares[tensor], shares[owner] = -1, tensor
    return shares, takes, alloc


def _least_ranks(rank: IntArray | None, grouping: Grouping) -> IntArray | None:
    """i4[G]: a group is as urgent as the most urgent of its ops."""
    if rank is None:
        return None
    least = np.full(grouping.num_groups, rank.max(initial=0), dtype=np.int32)
    np.minimum.at(least, grouping.group_of_op, rank)
    return least


def _byte_sums(amounts: LongArray, grouping: Grouping) -> LongArray:
    """i8[G]; sums in f8 are exact up to 2**53 bytes."""
    return group_sums(amounts, grouping).astype(np.int64)


@compiled
def _least_starts(
    row: IntArray, producer: IntArray, seconds: FloatArray, start: FloatArray
) -> None:
    """When each op starts if transfers take no time and devices are never busy."""
    for op in range(len(seconds)):
        for index in range(row[op], row[op + 1]):
            source = producer[index]
            start[op] = max(start[op], start[source] + seconds[source])


@compiled_part
def _may_join(
    state: _Joining, op: int, leader: int, seconds: FloatArray, kind: LongArray, small: float
) -> bool:
    colocation = state.colocation[op]
    return bool(
        seconds[op] <= small
        and state.taken[leader] + seconds[op] <= MAX_SMALL * small
        and kind[op] == kind[leader]
        and (colocation < 0 or colocation == state.colocation[leader])
    )


@compiled
def _join_inputs(
    state: _Joining,
    order: LongArray,
    row: IntArray,
    producer: IntArray,
    start: FloatArray,
    seconds: FloatArray,
    kind: LongArray,
    small: float,
) -> None:
    """Small ops join the group that comes last of those of their inputs.

    They don't where that group would then have to wait for another input of the op.
    """
    for position in range(len(order)):
        op = order[position]
        last = -1
        for index in range(row[op], row[op + 1]):
            leader = state.leader[producer[index]]
            if last < 0 or state.rank[leader] > state.rank[last]:
                last = leader
        if last < 0 or not _may_join(state, op, last, seconds, kind, small):
            continue
        waits = False
        for index in range(row[op], row[op + 1]):
            source = producer[index]
            if state.leader[source] != last:
                waits = waits or start[source] + seconds[source] > start[last]
        if not waits:
            state.leader[op] = last
            state.has_others[last] = True
            state.taken[last] += seconds[op]


@compiled
def _join_only_users(
    state: _Joining,
    order: LongArray,
    row: IntArray,
    user: IntArray,
    seconds: FloatArray,
    kind: LongArray,
    small: float,
) -> None:
    """Small ops that are alone in their group join that of their only user."""
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        if row[op + 1] - row[op] != 1:
            continue
        leader = state.leader[user[row[op]]]
        is_alone = state.leader[op] == op and not state.has_others[op]
        if is_alone and _may_join(state, op, leader, seconds, kind, small):
            state.leader[op] = leader
            state.has_others[leader] = True
            state.taken[leader] += seconds[op]

"""The barriers of a split step: where every shard waits for all shards.

Exact batch statistics make a barrier of every normalisation, forward and backward; sums of
gradients make others. Barrier k = 1 .. K is passed when the last copy of one certain op is done,
at t_k. Of every role (step_roles.py) is known which barriers are passed before any of its ops can
start, and which can't be passed before all of them are done.
"""

import dataclasses

import numpy as np

from graphs.host.compiled import compiled
from graphs.op_graph import LongArray
from tfplace.bounds.enclosed_work import longest_chain
from tfplace.bounds.relaxation import Edges, forward_edges
from tfplace.bounds.step_roles import StepRoles
from tfplace.grouping.copies import WHOLE
from tfplace.grouping.quotient import BoolArray, fastest_seconds

MOST_BARRIERS = 24
"""Where there are more, so many are used, evenly spaced along the step's longest path."""
_BITS = 64


@dataclasses.dataclass(frozen=True)
class Barriers:
    """What is known of R roles.

    Attributes:
      count: K.
      after: i8[R] the last barrier that is passed before an op of the role starts; 0 for none.
      until: i8[R] the first that is not passed before all its ops are done; K + 1, the end of the
        step, for none.
    """

    count: int
    after: LongArray
    until: LongArray


def barriers_of(roles: StepRoles) -> Barriers:
    """Finds them along the longest path of a step."""
    edges = forward_edges(roles.step)
    num_roles = len(roles.roles)
    after = np.zeros(num_roles, dtype=np.int64)
    until = np.full(num_roles, np.iinfo(np.int64).max)
    passed: list[int] = []
    for role in _on_longest_path(roles, edges):
        copies = np.flatnonzero(roles.role_of_op == role)
        needed = np.zeros(roles.step.num_ops, dtype=bool)
        needed[copies] = True
        _spread_back(edges.row, edges.source, needed)
        is_done = _of_all(needed, roles)
        if passed and not is_done[passed[-1]]:
            continue  # it may be passed before the last one
        passed.append(role)
        after[_of_all(_waits_for_all(roles, edges, copies), roles)] = len(passed)
        until[is_done & (until > len(passed))] = len(passed)
    return Barriers(len(passed), after, np.minimum(until, len(passed) + 1))


def _on_longest_path(roles: StepRoles, edges: Edges) -> list[int]:
    """Roles whose copies some op waits for, in the order of the path."""
    graph, shard = roles.step.graph, roles.shard
    chain = longest_chain(edges, fastest_seconds(roles.step, roles.step.allowed()))
    maker = graph.tensor_producer[graph.use_tensor]
    crosses = (shard[maker] != WHOLE) & (shard[graph.use_op] != shard[maker])
    is_read = np.zeros(graph.num_ops, dtype=bool)
    is_read[maker[crosses]] = True
    fits = is_read[chain] & (shard[chain] != WHOLE) & (roles.role_of_op[chain] >= 0)
    found = roles.role_of_op[chain[fits]]
    found = found[np.sort(np.unique(found, return_index=True)[1])]
    if len(found) > MOST_BARRIERS:
        found = found[np.linspace(0, len(found) - 1, MOST_BARRIERS).astype(np.int64)]
    return [int(role) for role in found]


def _of_all(holds: BoolArray, roles: StepRoles) -> BoolArray:
    """bool[R]: whether something holds for all ops of a role."""
    left_out = np.bincount(roles.role_of_op[~holds] + 1, minlength=len(roles.roles) + 1)
    return np.asarray(left_out[1:] == 0)


def _waits_for_all(roles: StepRoles, edges: Edges, copies: LongArray) -> BoolArray:
    """bool[N]: the ops, these aside, that wait for every one of these copies."""
    waits = np.ones(roles.step.num_ops, dtype=bool)
    for first in range(0, roles.num_shards, _BITS):
        bit = roles.shard[copies] - first
        here = (bit >= 0) & (bit < _BITS)
        seen = np.zeros(roles.step.num_ops, dtype=np.uint64)
        seen[copies[here]] = np.left_shift(np.uint64(1), bit[here].astype(np.uint64))
        everything = np.bitwise_or.reduce(seen)
        _spread(edges.row, edges.source, seen)
        waits &= seen == everything
    waits[copies] = False
    return waits


@compiled
def _spread(row: LongArray, source: LongArray, seen: np.ndarray) -> None:
    """Each op has seen what those that it waits for have seen."""
    for op in range(len(row) - 1):
        for edge in range(row[op], row[op + 1]):
            seen[op] |= seen[source[edge]]


@compiled
def _spread_back(row: LongArray, source: LongArray, needed: BoolArray) -> None:
    """What an op needs that is needed is needed, too."""
    for op in range(len(row) - 2, -1, -1):
        if needed[op]:
            for edge in range(row[op], row[op + 1]):
                needed[source[edge]] = True

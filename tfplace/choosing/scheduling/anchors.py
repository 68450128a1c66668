"""Which ops an order may hold on to, and which it may hold back.

An edge holds at run time only between ops that are still there after Grappler: it folds constants,
and takes out identities and whatever only changes a shape. Control edges stay within one graph or
one function body; and within what surely runs, since what waits for an op of a branch that isn't
taken doesn't run either.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.op_graph import IntArray
from graphs.op_types import ALIASES, NO_LAUNCH
from graphs.problem import Problem
from tfplace.grouping.copies import is_relay

READS = frozenset({"ReadVariableOp"})
"""What hands a variable's value on and takes no time: it may be held back until that is needed."""

Bools = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Anchors:
    """Where an order's edges may begin and end.

    Attributes:
      body_of_op: i4[N] ops with one number stand in one body; -1 for ops without order edges.
      is_real: bool[N] ops that take time: they may be held back.
      may_hold: bool[N] those of them that may hold others back.
      is_read: bool[N] reads of variables that wait for nothing but the variable: they may be held
        back, and hold back other reads.
      is_relay: bool[N] what hands a whole value on from shard to shard: it goes with its read.
    """

    body_of_op: IntArray
    is_real: Bools
    may_hold: Bools
    is_read: Bools
    is_relay: Bools


def anchors_of(
    problem: Problem, body_of_op: IntArray | None = None, may_hold: Bools | None = None
) -> Anchors:
    """The anchors of a problem.

    Args:
      body_of_op: see Anchors; None where all stand in one body.
      may_hold: bool[N] ops that others may wait for; None for all.
    """
    graph = problem.graph
    if body_of_op is None:
        body_of_op = np.zeros(graph.num_ops, dtype=np.int32)
    producer, user, _ = graph.op_edges()
    has_inputs, has_late_inputs = np.zeros((2, graph.num_ops), dtype=bool)
    has_inputs[user] = True
    has_late_inputs[user[has_inputs[producer]]] = True  # of an op that itself uses something
    foldable = _of_types(graph.op_types, frozenset({"Const"}))  # computed from constants alone
    others: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in zip(producer.tolist(), user.tolist(), strict=True):
        others[target].append(source)
    for op in np.flatnonzero(has_inputs).tolist():
        foldable[op] = all(foldable[source] for source in others[op])
    stays = ~_of_types(graph.op_types, ALIASES | NO_LAUNCH) & ~foldable
    is_in_body = body_of_op >= 0
    is_read = _of_types(graph.op_types, READS) & is_in_body & ~has_late_inputs
    is_real = stays & is_in_body
    holds = is_real if may_hold is None else is_real & may_hold
    return Anchors(body_of_op, is_real, holds, is_read, is_relay(problem, with_blocks=False))


def _of_types(op_types: Sequence[str], wanted: frozenset[str]) -> Bools:
    return np.array([op_type in wanted for op_type in op_types], dtype=bool)

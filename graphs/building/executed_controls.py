"""Control edges as TensorFlow runs them: without those that other edges imply.

Grappler's dependency optimizer drops a control edge where a longer way leads from its op to the one
that waits, whatever devices these lie on. What only tells that the step is over (NoOps and outputs
that wait for all updates) gets one message from each other device, which holds nothing up: the step
takes until its last op ends in any case.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from graphs.building.colocation import with_pairs
from graphs.op_graph import IntArray, OpGraph

BoolArray = npt.NDArray[np.bool_]
_DO_NOTHING = ("NoOp", "Identity", "IdentityN")
_BLOCK = 1 << 12  # control edges that are looked at together: so many bits for each op


@dataclasses.dataclass(frozen=True)
class StepEnd:
    """The ops that do nothing but wait for the end of a step.

    Attributes:
      ops: i4[K] ascending; none where nothing waits.
      waited_for: i4[W] ascending: the ops whose control edges lead to them from outside.
    """

    ops: IntArray
    waited_for: IntArray


def without_implied(graph: OpGraph) -> OpGraph:
    """The graph without the control edges for which there is a longer way."""
    controls = np.flatnonzero(_is_control(graph))
    source = graph.tensor_producer[graph.use_tensor].tolist()
    target = graph.use_op.tolist()
    is_implied = np.zeros(len(target), dtype=bool)
    into: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for use, op in enumerate(target):
        into[op].append(source[use])
    producers = np.unique(graph.tensor_producer[graph.use_tensor[controls]])
    for begin in range(0, len(producers), _BLOCK):
        bit_of = {int(op): 1 << i for i, op in enumerate(producers[begin : begin + _BLOCK])}
        before = [0] * graph.num_ops  # which of the producers lead to an op
        longer = [0] * graph.num_ops  # by a way of two edges or more
        for op, sources in enumerate(into):
            direct = far = 0
            for each in sources:
                far |= before[each]
                direct |= bit_of.get(each, 0)
            before[op], longer[op] = direct | far, far
        for use in controls.tolist():
            is_implied[use] |= bool(longer[target[use]] & bit_of.get(source[use], 0))
    return _with_uses(graph, ~is_implied)


def step_end(graph: OpGraph) -> StepEnd:
    """What waits for a step's end by control edges, and for which ops."""
    # What does nothing, is read by nothing else, and has a control edge to or from such.
    is_end = np.isin(np.asarray(graph.op_types), _DO_NOTHING)
    source, target = graph.tensor_producer[graph.use_tensor], graph.use_op
    for use in np.argsort(source, kind="stable")[::-1].tolist():  # users before their producers
        if not is_end[target[use]]:
            is_end[source[use]] = False
    among = _is_control(graph) & is_end[target]
    tied = np.zeros(graph.num_ops, dtype=bool)
    tied[target[among]] = True
    tied[source[among]] = True
    waits = is_end & tied
    outside = _is_control(graph) & waits[target] & ~waits[source]
    return StepEnd(
        np.flatnonzero(waits).astype(np.int32), np.unique(source[outside]).astype(np.int32)
    )


def without_step_end(graph: OpGraph) -> OpGraph:
    """The graph without the control edges that lead to the step's end, whose ops lie together."""
    ops = step_end(graph).ops
    is_end = np.zeros(graph.num_ops, dtype=bool)
    is_end[ops] = True
    return _with_uses(graph, ~(_is_control(graph) & is_end[graph.use_op]))


def tied_end(colocation_group: IntArray, ops: IntArray, allowed: BoolArray) -> IntArray:
    """i4[N]: the colocation groups, with the ops of the step's end in one.

    Args:
      colocation_group: i4[N]; -1 for ops in none.
      ops: i4[K] of the step's end.
      allowed: bool[N, D] where each op may lie; nothing is joined where no device would be left.
    """
    if len(ops) < 2 or not allowed[ops].all(axis=0).any():
        return colocation_group
    return with_pairs(colocation_group, ops[1:], np.full(len(ops) - 1, ops[0]))


def _is_control(graph: OpGraph) -> BoolArray:
    """bool[U]."""
    return graph.tensor_output[graph.use_tensor] < 0


def _with_uses(graph: OpGraph, kept: BoolArray) -> OpGraph:
    return dataclasses.replace(graph, use_tensor=graph.use_tensor[kept], use_op=graph.use_op[kept])

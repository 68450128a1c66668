"""A step with weights in pieces that takes inputs of several sizes."""

import dataclasses
from collections.abc import Mapping, Sequence

from graphs.flat_graph import FlatGraph
from graphs.protos import Shape
from rewrite.split.any_batch.open_step import OpenStep
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.decision import Split, is_same_answer
from rewrite.split.functions import Bodies
from rewrite.split.states import Sharded, State

_MORE = 3
_OF_ANOTHER_SIZE = "its parts have other sizes with other inputs"


def with_open_sizes(
    flat: FlatGraph,
    decisions: Decisions,
    open_axes: Mapping[str, Sequence[int]],
    kept_whole: Mapping[str, str],
    bodies: Bodies,
) -> Decisions:
    """What holds at other sizes, too: ops that are split otherwise there stay whole.

    Args:
      flat: the step.
      decisions: at its sizes; returned as they are where they hold for these alone.
      open_axes: {fed tensor: its axes of any size}.
      kept_whole, bodies: as `decide` has them.
    """
    step = OpenStep(flat, decisions.properties, decisions.batch, {}, open_axes)
    larger = step.larger(_MORE)
    answers = decisions.answer_of_op.values()
    has_bodies = any(isinstance(each, Split) and each.bodies for each in answers)
    shapes = step.shapes_of_any_size()
    if larger is None or has_bodies or not _leave_one_size(decisions.state_of_tensor, shapes):
        return decisions
    whole = dict(kept_whole)

    def decided(at: OpenStep) -> Decisions:
        known = {"bodies": bodies, "values": at.values, "pieces": decisions.pieces}
        return decide(at.flat, at.properties, decisions.batch, {}, whole, **known)  # type: ignore[arg-type]

    here = decisions
    while True:  # ends: the ops that stay whole only grow more
        others = decided(larger).answer_of_op
        unlike = {n for n, a in here.answer_of_op.items() if not is_same_answer(a, others[n])}
        unlike -= whole.keys()
        if not unlike:
            break
        whole |= dict.fromkeys(unlike, _OF_ANOTHER_SIZE)
        here = decided(step)
    axes = {feed: [*each] for feed, each in open_axes.items()}
    return dataclasses.replace(here, is_open=True, open_axes=axes, any_shapes=shapes)


def _leave_one_size(states: Mapping[str, State], shapes: Mapping[str, Sequence[Shape]]) -> bool:
    """Whether what is in blocks has one open size: a reshape takes blocks apart, and leaves one."""
    for tensor, state in states.items():
        if isinstance(state, Sharded) and state.outer > 1:
            op, _, index = tensor.partition(":")
            shape = shapes[op][int(index)] if op in shapes else None
            if shape is None or shape[state.axis : state.axis + 1] == (-1,) or shape.count(-1) > 1:
                return False
    return True

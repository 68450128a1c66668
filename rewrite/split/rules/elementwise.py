"""Ops that compute each element of their output of the elements at the same place."""

from graphs.protos import is_open
from rewrite.split.decision import Answer, Split
from rewrite.split.rules.factors import axes, broadcast, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, OpView
from rewrite.split.rules.rows import DONT_FIT


def elementwise(view: OpView, adds_up: bool = False) -> Answer:
    """All inputs are broadcast together, and all outputs have that shape."""
    result, shapes = view.result(), [view.shape(i) for i in range(len(view.inputs))]
    if len(shapes) > 1 and any(map(is_open, shapes)):
        return UNKNOWN_SHAPE  # a dimension of unknown size may be one that is stretched
    if any(len(shape) > len(result) for shape in shapes):
        return DONT_FIT  # `x == y` says no then, once for all
    outputs = [axes(len(result))] * len(view.output_shapes)
    inputs = [broadcast(shape, result) for shape in shapes]
    return split_by_factors(view, inputs, outputs, adds_up=adds_up)


def additive(view: OpView) -> Answer:
    """Elementwise, and adding up: Identity, AddN, Sub. Terms of different shapes do not add up."""
    return elementwise(view, adds_up=len({each.shape for each in view.inputs}) == 1)


def identity_n(view: OpView) -> Answer:
    """Input i is output i, whatever its shape."""
    if any(each.shape is None for each in view.inputs):
        return UNKNOWN_SHAPE
    # Inputs may be sharded along different axes: no factor ties them together.
    return Split(view.states, view.states)


def select(view: OpView) -> Answer:
    """Select: the condition may be a vector that chooses whole rows."""
    condition, labels = view.shape(), axes(len(view.result()))
    return split_by_factors(view, [labels[: len(condition)], labels, labels], [labels])

"""Ops that compute each element of their output of the elements at the same place."""

from rewrite.split.decision import Answer, Shape, Split, StayWhole, is_open
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView

UNKNOWN_SHAPE = StayWhole("the shape of a tensor is not known before the run")


def axes(rank: int) -> list[str]:
    """A label for each dimension of a tensor: d0, d1, ..."""
    return [f"d{axis}" for axis in range(rank)]


def broadcast(shape: Shape, result: Shape) -> Labels:
    """Labels of an operand that is broadcast to `result`; a stretched dimension has none."""
    assert shape is not None and result is not None
    offset = len(result) - len(shape)
    return [
        f"d{offset + axis}" if size == result[offset + axis] else None
        for axis, size in enumerate(shape)
    ]


def elementwise(view: OpView, adds_up: bool = False) -> Answer:
    """All inputs are broadcast together, and all outputs have that shape."""
    result = view.output_shapes[0]
    if result is None or any(each.shape is None for each in view.inputs):
        return UNKNOWN_SHAPE
    if len(view.inputs) > 1 and any(min(each.shape or (), default=0) < 0 for each in view.inputs):
        return UNKNOWN_SHAPE  # a dimension of unknown size may be one that is stretched
    if any(len(each.shape or ()) > len(result) for each in view.inputs):
        return StayWhole("its inputs don't fit together")  # `x == y` says no then, once for all
    inputs = [broadcast(each.shape, result) for each in view.inputs]
    return split_by_factors(
        view, Factors(inputs, [axes(len(result))] * len(view.output_shapes), adds_up=adds_up)
    )


def additive(view: OpView) -> Answer:
    """Elementwise, and adding up: Identity, AddN, Sub. Terms of different shapes do not add up."""
    shapes = {each.shape for each in view.inputs}
    return elementwise(view, adds_up=len(shapes) == 1)


def identity_n(view: OpView) -> Answer:
    """Input i is output i, whatever its shape."""
    if any(each.shape is None for each in view.inputs):
        return UNKNOWN_SHAPE
    # Inputs may be sharded along different axes: no factor ties them together.
    return Split(view.states, view.states)


def with_vector(view: OpView) -> Answer:
    """BiasAdd: input 1 runs along the channels of input 0."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels = axes(len(shape))
    is_first = view.node.op == "BiasAdd" and view.attr("data_format").s == b"NCHW"
    channel = 1 if is_first else len(shape) - 1
    return split_by_factors(view, Factors([labels, [labels[channel]]], [labels]))


def cross_entropy(view: OpView) -> Answer:
    """(Sparse)SoftmaxCrossEntropyWithLogits: loss [B], gradient [B, C] of logits [B, C]."""
    rows = view.output_shapes[0]
    if any(is_open((each.shape or (-1,))[:1]) for each in view.inputs) or rows is None:
        return UNKNOWN_SHAPE  # rows of an unknown number may be one that is stretched
    inputs: list[Labels] = [  # one row for all entries is broadcast
        [*broadcast((each.shape or ())[:1], rows), *[None] * (len(each.shape or ()) - 1)]
        for each in view.inputs
    ]
    return split_by_factors(view, Factors(inputs, [["d0"], ["d0", None]]))


def select(view: OpView) -> Answer:
    """Select: the condition may be a vector that chooses whole rows."""
    condition, result = view.inputs[0].shape, view.output_shapes[0]
    if condition is None or result is None:
        return UNKNOWN_SHAPE
    labels = axes(len(result))
    first = labels if len(condition) == len(result) else labels[: len(condition)]
    return split_by_factors(view, Factors([first, labels, labels], [labels]))

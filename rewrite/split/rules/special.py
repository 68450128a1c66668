"""Ops whose rule is their own."""

import dataclasses
import math

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes, elementwise
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView, whole_inputs
from rewrite.split.rules.reductions import UNKNOWN_AXES
from rewrite.split.states import SUM, WHOLE, Sharded

ACROSS = StayWhole("it works across the batch, along the axis that is cut")


TENSORFLOW_1 = (
    "it is part of a loop or conditional of TensorFlow 1, made of single ops; a graph that is made "
    "after tf.compat.v1.enable_control_flow_v2() has them as functions, which are split"
)


def space_to_batch(view: OpView) -> Answer:
    """SpaceToBatchND: the places within a block come to lie outside of the batch."""
    return _blocks(view, is_taken_apart=True)


def batch_to_space(view: OpView) -> Answer:
    """BatchToSpaceND: the places within a block are what lies outermost in the batch."""
    return _blocks(view, is_taken_apart=False)


def _blocks(view: OpView, is_taken_apart: bool) -> Answer:
    state, block = view.inputs[0].state, view.inputs[1].value
    if block is None:
        return UNKNOWN_AXES
    if not isinstance(state, Sharded) or state.axis != 0:
        return ACROSS
    count = math.prod(int(size) for size in block)
    if is_taken_apart:
        new = dataclasses.replace(state, outer=state.outer * count)
    elif state.outer % count == 0:
        new = dataclasses.replace(state, outer=state.outer // count)
    else:
        return ACROSS
    return Split((state, *whole_inputs(view)[1:]), (new,))


def reverse_sequence(view: OpView) -> Answer:
    """ReverseSequence: input 1 has a length for each entry along `batch_dim`."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    along, batch = (view.attr(name).i % len(shape) for name in ("seq_dim", "batch_dim"))
    labels: Labels = [None if a == along else x for a, x in enumerate(axes(len(shape)))]
    return split_by_factors(view, Factors([labels, [labels[batch]]], [labels]))


def ensure_shape(view: OpView) -> Answer:
    """EnsureShape: the size of the axis that is cut is no longer asked for."""
    answer = elementwise(view, adds_up=True)
    shape = view.attr("shape").shape
    if not isinstance(answer, Split) or not isinstance(answer.outputs[0], Sharded):
        return answer
    attr = type(view.attr("shape"))()
    attr.shape.CopyFrom(shape)
    if not shape.unknown_rank:
        attr.shape.dim[answer.outputs[0].axis].size = -1
    return dataclasses.replace(answer, attrs={"shape": attr})


def bitcast(view: OpView) -> Answer:
    """Bitcast: a dtype of another width adds or takes a last dimension."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    if shape is None or result is None:
        return UNKNOWN_SHAPE
    labels = axes(min(len(shape), len(result)))
    rows = [[*labels, *[None] * (len(each) - len(labels))] for each in (shape, result)]
    return split_by_factors(view, Factors([rows[0]], [rows[1]]))


def diagonals(view: OpView) -> Answer:
    """MatrixDiagV2 and V3, MatrixDiagPart*, MatrixSetDiag*: all but matrices are apart."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    if shape is None or result is None:
        return UNKNOWN_SHAPE
    leading = axes(len(result if view.node.op.startswith("MatrixDiagV") else shape) - 2)
    rows: list[Labels | None] = [[*leading, *[None] * (len(shape) - len(leading))]]
    if view.node.op.startswith("MatrixSetDiag"):
        rows.append([*leading, *[None] * (len(view.inputs[1].shape or ()) - len(leading))])
    rows += [None] * (len(view.inputs) - len(rows))
    out: Labels = [*leading, *[None] * (len(result) - len(leading))]
    return split_by_factors(view, Factors(rows, [out]))


def decomposition(view: OpView) -> Answer:
    """Svd, SelfAdjointEigV2: all but the last two dimensions are apart."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    leading = axes(len(shape) - 2)
    outputs: list[Labels] = []
    for index, result in enumerate(view.output_shapes):
        if result is None or len(result) != len(shape) - (index == 0):
            return UNKNOWN_SHAPE  # vectors that nobody asked for
        outputs.append([*leading, *[None] * (len(result) - len(leading))])
    return split_by_factors(view, Factors([[*leading, None, None]], outputs))


def max_pool_with_argmax(view: OpView) -> Answer:
    """MaxPoolWithArgmax and its gradient: apart, unless places are counted across images."""
    if view.attr("include_batch_in_index").b:
        return StayWhole("it numbers places across the images of the batch")
    image: Labels = ["n", None, None, None]
    rows = [image] * len(view.inputs)
    return split_by_factors(view, Factors(rows, [image] * len(view.output_shapes)))


def quantize(view: OpView) -> Answer:
    """QuantizeAndDequantize*: elementwise where the range is given."""
    if not view.attr("range_given").b:
        return StayWhole("it looks for its range across the batch")
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels: list[str | None] = list(axes(len(shape)))
    if view.attr("axis").i >= 0:  # along it each entry has a range of its own
        labels[view.attr("axis").i] = None
    inputs: list[Labels | None] = [labels, *[None] * (len(view.inputs) - 1)]
    return split_by_factors(view, Factors(inputs, [labels]))


def quantize_gradient(view: OpView) -> Answer:
    """FakeQuantWithMinMaxVars(PerChannel)Gradient, QuantizeAndDequantizeV4Grad.

    Inputs 0 and 1 are as large as output 0; the range's gradients sum over all but its own axis.
    """
    state = next((s for s in view.states[:2] if isinstance(s, Sharded)), None)
    shape = view.inputs[0].shape
    if shape is None or state is None:
        return UNKNOWN_SHAPE
    is_channel = len(view.inputs[2].shape or ()) == 1
    axis = view.attr("axis").i if "axis" in view.node.attr else -1
    if is_channel and state.axis == (axis if axis >= 0 else len(shape) - 1):
        return ACROSS
    wholes = (WHOLE,) * (len(view.inputs) - 2)
    return Split((state, state, *wholes), (state, SUM, SUM))


def bincount(view: OpView) -> Answer:
    """Bincount, DenseBincount: rows are apart; what is counted in one row adds up."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    is_binary = view.node.op == "DenseBincount" and view.attr("binary_output").b
    labels: Labels = axes(len(shape)) if len(shape) < 2 else ["d0", None]
    has_weights = (view.inputs[2].shape or (0,)) == shape
    rows = [labels, None, labels if has_weights else None]
    if len(shape) == 2 and view.node.op == "DenseBincount":
        return split_by_factors(view, Factors(rows, [["d0", None]]))
    if is_binary or len(shape) != 1:
        return ACROSS
    return split_by_factors(view, Factors(rows, [[None]], {"d0": "sum"}))


def histogram(view: OpView) -> Answer:
    """HistogramFixedWidth: what is counted adds up."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels = axes(len(shape))
    return split_by_factors(
        view, Factors([labels, None, None], [[None]], dict.fromkeys(labels, "sum"))
    )


def updates(view: OpView) -> Answer:
    """What changes a variable happens once."""
    if not view.sharded:
        return StayWhole()
    return StayWhole("it changes a variable, which happens once, with all rows")


def of_tensorflow_1(view: OpView) -> Answer:
    """Loops and conditionals of single ops: a copy's constants would be alive in dead branches."""
    del view
    return StayWhole(TENSORFLOW_1)

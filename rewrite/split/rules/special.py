"""Ops whose rule is their own."""

import dataclasses
import math

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.elementwise import elementwise
from rewrite.split.rules.factors import ACROSS, axes, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, InputView, OpView, whole_inputs
from rewrite.split.rules.rows import by_row
from rewrite.split.states import SUM, WHOLE, Sharded, State, can_be_cut

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
    state, block = view.inputs[0].state, view.value(1)
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
    rank = len(view.shape())
    along, batch = (view.attr(name).i % rank for name in ("seq_dim", "batch_dim"))
    labels = axes(rank, [along])
    return split_by_factors(view, [labels, [labels[batch]]], [labels])


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
    ranks = len(view.shape()), len(view.result())
    row, out = (axes(rank, range(min(ranks), rank)) for rank in ranks)
    return split_by_factors(view, [row], [out])


def max_pool_with_argmax(view: OpView) -> Answer:
    """MaxPoolWithArgmax and its gradient: apart, unless places are counted across images."""
    if view.attr("include_batch_in_index").b:
        return StayWhole("it numbers places across the images of the batch")
    return by_row(view)


def quantize(view: OpView) -> Answer:
    """QuantizeAndDequantize*: elementwise where the range is given."""
    if not view.attr("range_given").b:
        return StayWhole("it looks for its range across the batch")
    labels = axes(len(view.shape()), [view.attr("axis").i])  # there each entry has its own range
    return split_by_factors(view, [labels], [labels])


def quantize_gradient(view: OpView) -> Answer:
    """FakeQuantWithMinMaxVars(PerChannel)Gradient, QuantizeAndDequantizeV4Grad.

    Inputs 0 and 1 are as large as output 0; the range's gradients sum over all but its own axis.
    """
    state = next((s for s in view.states[:2] if isinstance(s, Sharded)), None)
    shape = view.shape()
    if state is None:
        return UNKNOWN_SHAPE
    is_channel = len(view.inputs[2].shape or ()) == 1
    axis = view.attr("axis").i if "axis" in view.node.attr else -1
    if is_channel and state.axis == (axis if axis >= 0 else len(shape) - 1):
        return ACROSS
    wholes = (WHOLE,) * (len(view.inputs) - 2)
    return Split((state, state, *wholes), (state, SUM, SUM))


def bincount(view: OpView) -> Answer:
    """Bincount, DenseBincount: rows are apart; what is counted in one row adds up."""
    shape, is_dense = view.shape(), view.node.op == "DenseBincount"
    labels = axes(len(shape), [1])
    has_weights = (view.inputs[2].shape or (0,)) == shape
    rows = [labels, None, labels if has_weights else None]
    if len(shape) == 2 and is_dense:
        return split_by_factors(view, rows, [labels])
    if len(shape) != 1 or (is_dense and view.attr("binary_output").b):
        return ACROSS
    return split_by_factors(view, rows, [[None]], "sum")


def read_variable(view: OpView) -> Answer:
    """ReadVariableOp of a variable in pieces."""
    return Split(view.states, view.states)


def update_variable(view: OpView) -> Answer:
    """What changes each element of a variable by the elements at the same place: each piece."""
    state = view.states[0]
    if not isinstance(state, Sharded):
        return updates(view)

    def is_cut(given: InputView) -> bool:
        return given.dtype == "resource" or can_be_cut(given.shape, state, view.batch)

    return Split(tuple(state if is_cut(each) else WHOLE for each in view.inputs), ())


def update_rows(view: OpView) -> Answer:
    """What changes rows of variables, by new ones for the rows that it names: pieces by columns."""
    state = view.states[0]
    if not isinstance(state, Sharded) or not state.axis:
        return updates(view)
    ranks = [len(view.shape(i)) for i in range(len(view.inputs))]
    ids = 1 if view.node.op.startswith("ResourceScatter") else ranks.index(1)
    columns = dataclasses.replace(state, axis=state.axis - 1 + ranks[ids])

    def of(position: int, given: InputView) -> State:
        if given.dtype == "resource":
            return state
        return columns if position != ids and ranks[position] else WHOLE

    return Split(tuple(of(*each) for each in enumerate(view.inputs)), ())


def updates(view: OpView) -> Answer:
    """What changes a variable happens once."""
    if not view.sharded:
        return StayWhole()
    return StayWhole("it changes a variable, which happens once, with all rows")


def of_tensorflow_1(view: OpView) -> Answer:
    """Loops and conditionals of single ops: a copy's constants would be alive in dead branches."""
    del view
    return StayWhole(TENSORFLOW_1)

"""Ops that move elements without computing: reshape, transpose, slice, concatenate, gather ..."""

import dataclasses
import math

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.factors import axes, cut, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, OpView, whole_inputs
from rewrite.split.states import WHOLE, Partial, Sharded, State

NOT_APART = StayWhole("it spreads the batch over several dimensions")


def reshape(view: OpView) -> Answer:
    """Follows the batch by its place in the row-major order of the elements, never by its size.

    The batch takes the elements from stride R to stride R * B, where R counts what lies inside of
    one entry. A dimension of the result holds it if its own span [s, s * size) contains that and
    both ends divide.
    """
    state, shape, result = view.inputs[0].state, view.shape(), view.result()
    if min((*shape, *result), default=1) < 1:
        return UNKNOWN_SHAPE
    if isinstance(state, Partial):
        return Split((state, *whole_inputs(view)[1:]), (state,))
    if not isinstance(state, Sharded):  # only its shape is made of parts
        return StayWhole("its shape is computed from what is cut")
    landed = placed_in(result, math.prod(shape[state.axis + 1 :]) * state.inner, view.batch)
    if landed is None:
        return NOT_APART
    shapes = {1: {landed.axis: landed}} if view.node.op == "Reshape" else {}
    return Split((state, *whole_inputs(view)[1:]), (landed,), shapes)


def placed_in(shape: tuple[int, ...], stride: int, batch: int) -> Sharded | None:
    """Where in a shape a batch lies whose entries are `stride` elements apart; None if nowhere."""
    own = 1  # elements inside of one step along this axis
    for axis in range(len(shape) - 1, -1, -1):
        end = own * shape[axis]
        if own <= stride and end >= stride * batch and end > own:
            if stride % own or end % (stride * batch):
                return None
            return Sharded(axis, end // (stride * batch), stride // own)
        own = end
    return None


def squeeze(view: OpView) -> Answer:
    """A Reshape; the copies name their axes, since a part may have a dimension of 1 of its own.

    Where there is none to name they drop nothing: no axes at all would mean all of a single entry.
    """
    answer = reshape(view)
    shape = view.inputs[0].shape
    if not isinstance(answer, Split) or shape is None or view.attr("squeeze_dims").list.i:
        return answer
    attr = type(view.attr("squeeze_dims"))()
    attr.list.i.extend(axis for axis, size in enumerate(shape) if size == 1)
    if not attr.list.i:
        return dataclasses.replace(answer, op="Identity", attrs={"T": view.attr("T")})
    return dataclasses.replace(answer, attrs={"squeeze_dims": attr})


def transpose(view: OpView) -> Answer:
    """Input 1 says which dimension goes where."""
    labels, order = axes(len(view.shape())), view.value(1)
    return split_by_factors(view, [labels], [[labels[int(a)] for a in order]], adds_up=True)


def pack(view: OpView) -> Answer:
    """Stacks its inputs along a new axis."""
    out = _with_new_axis(view)
    return split_by_factors(view, [cut(out)] * len(view.inputs), [out], adds_up=True)


def one_hot(view: OpView) -> Answer:
    """OneHot: a new axis in the result."""
    out = _with_new_axis(view)
    return split_by_factors(view, [cut(out)], [out])


def _with_new_axis(view: OpView) -> list[str | None]:
    rank = len(view.result())
    return axes(rank, [view.attr("axis").i % rank])


def unpack(view: OpView) -> Answer:
    """Takes its input apart along an axis, which goes."""
    rank = len(view.shape())
    row = axes(rank, [view.attr("axis").i % rank])
    return split_by_factors(view, [row], [cut(row)] * len(view.output_shapes), adds_up=True)


def concat(view: OpView) -> Answer:
    """ConcatV2: the last input names the axis."""
    return _or_blocks(view, _along(view, len(view.inputs) - 1), len(view.inputs) - 1)


def concat_v1(view: OpView) -> Answer:
    """Concat: the first input names the axis."""
    return _or_blocks(view, _along(view, 0), 0)


def _or_blocks(view: OpView, answer: Answer, position: int) -> Answer:
    """Batches one behind another are blocks of one axis: two views of an image, real and made."""
    value, given = view.inputs[position].value, list(view.inputs)
    if isinstance(answer, Split) or value is None or not view.sharded:
        return answer
    given.pop(position)
    first = view.inputs[view.sharded[0]].state
    assert isinstance(first, Sharded)
    if first.axis != int(value) % len(view.output_shapes[0] or ()):
        return answer
    states: list[State] = []
    num_blocks = {True: 0, False: 0}  # of what is cut already, and of what is whole
    for each in given:
        state = first.blocks_of(each.shape, view.batch)
        if state is None or each.state not in (WHOLE, state):
            return answer
        num_blocks[each.state == state] += state.outer
        states.append(state)
    if num_blocks[False] > num_blocks[True]:  # a long queue beside a batch
        return answer
    states.insert(position, WHOLE)
    return Split(tuple(states), (dataclasses.replace(first, outer=sum(num_blocks.values())),))


def split(view: OpView) -> Answer:
    """Split: input 0 names the axis, input 1 is cut."""
    answer = _along(view, 0)
    return answer if isinstance(answer, Split) else _in_blocks(view, answer, 0, 1)


def split_v(view: OpView) -> Answer:
    """SplitV: input 2 names the axis, input 1 the sizes."""
    answer = _along(view, 2, 1)
    if isinstance(answer, Split):
        return answer
    answer = _in_blocks(view, answer, 2, 0)
    if not isinstance(answer, Split):
        return answer
    sizes = {i: state for i, state in enumerate(answer.outputs) if isinstance(state, Sharded)}
    return dataclasses.replace(answer, shape_inputs={1: sizes})


def _in_blocks(view: OpView, otherwise: Answer, position: int, cut: int) -> Answer:
    """Takes batches apart that lie one behind another."""
    value, state = view.inputs[position].value, view.inputs[cut].state
    if value is None or not isinstance(state, Sharded):
        return otherwise
    outputs: list[State] = []
    for shape in view.output_shapes:
        blocks = state.blocks_of(shape, view.batch)
        if blocks is None or blocks.axis != int(value) % len(shape or ()):
            return otherwise
        outputs.append(blocks)
    inputs = tuple(state if i == cut else WHOLE for i in range(len(view.inputs)))
    return Split(inputs, tuple(outputs))


def _along(view: OpView, position: int, *others: int) -> Answer:
    """All tensors keep their dimensions; along one axis, which an input names, they don't match."""
    rank = len(view.result())
    labels = axes(rank, view.axes(position, rank))
    parameters = {position, *others}
    inputs = [None if i in parameters else labels for i in range(len(view.inputs))]
    return split_by_factors(view, inputs, [labels] * len(view.output_shapes), adds_up=True)


def tile(view: OpView) -> Answer:
    """Tile: axes that are not repeated are apart; a batch that is repeated makes more blocks."""
    state, multiples = view.inputs[0].state, view.value(1)
    labels = axes(len(view.shape()), {a for a, count in enumerate(multiples) if count != 1})
    if isinstance(state, Sharded) and (count := int(multiples[state.axis])) > 1:
        more = dataclasses.replace(state, outer=state.outer * count)
        return Split((state, *whole_inputs(view)[1:]), (more,))
    return split_by_factors(view, [labels], [labels], adds_up=True)

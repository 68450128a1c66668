"""Ops that take a range of each axis, or put it back: slices, strided slices, padding."""

import dataclasses
from collections.abc import Iterator, Sized
from typing import NamedTuple

import numpy as np

from graphs.building.op_outputs import attr_of
from graphs.protos import NodeDef
from rewrite.split.decision import Answer, Split
from rewrite.split.rules.factors import axes, split_by_factors
from rewrite.split.rules.op_view import OpView, whole_inputs
from rewrite.split.states import WHOLE, Sharded


def slice_(view: OpView) -> Answer:
    """Slice: the batch axis must be taken whole; its size becomes the shard's."""
    begin, shape, result = view.value(1), view.shape(), view.result()
    view.value(2)  # without which the copies' own can't be said
    labels = axes(len(shape), {a for a, n in enumerate(shape) if begin[a] or n != result[a]})
    answer = split_by_factors(view, [labels], [labels], adds_up=True, shape_inputs={2: 0})
    state = view.inputs[0].state
    if isinstance(answer, Split) or not isinstance(state, Sharded):
        return answer
    first = int(begin[state.axis])
    taken = _blocks(state, first, first + result[state.axis], view.batch)
    if taken is None:
        return answer
    before, blocks = taken
    numbers = {i: {state.axis: each} for i, each in ((1, before), (2, blocks)) if each}
    return Split((state, WHOLE, WHOLE), (blocks,), numbers)


def _blocks(
    state: Sharded, begin: int, end: int, batch: int
) -> tuple[Sharded | None, Sharded] | None:
    """What lies before a range of the axis that is cut, and the range; None if it cuts a block.

    An axis that holds several batches, one behind another, can be taken apart again.
    """
    unit = batch * state.inner
    if begin % unit or end % unit or not 0 <= begin < end <= state.size(batch):
        return None
    before = dataclasses.replace(state, outer=begin // unit) if begin else None
    return before, dataclasses.replace(state, outer=(end - begin) // unit)


def strided_slice(view: OpView) -> Answer:
    """StridedSlice: the batch axis must be taken whole, in its order."""
    spec = _strides(view, view.shape())
    answer = split_by_factors(view, [spec.rows], [spec.outs], adds_up=True)
    state = view.inputs[0].state
    if not isinstance(answer, Split) and isinstance(state, Sharded):
        return _strided_blocks(view, spec, state) or answer
    if not isinstance(answer, Split) or not isinstance(answer.inputs[0], Sharded):
        return answer
    end = spec.ends.get(answer.inputs[0].axis)
    if end is None:  # the mask says that the end doesn't count
        return answer
    return dataclasses.replace(answer, shape_inputs={2: {end: answer.inputs[0]}})


def _strided_blocks(view: OpView, spec: "_Strides", state: Sharded) -> Split | None:
    """The first or the second of two batches that lie one behind another."""
    taken = spec.ranges.get(state.axis)
    found = taken and _blocks(state, taken.begin, taken.end, view.batch)
    if not taken or not found:
        return None
    result = dataclasses.replace(found[1], axis=taken.axis)
    return Split((state, WHOLE, WHOLE, WHOLE), (result,), _begin_and_end(view, taken.entry, *found))


def _begin_and_end(
    view: OpView, entry: int, before: Sharded | None, blocks: Sharded
) -> dict[int, dict[int, Sharded]]:
    """{input: {entry: the blocks that it counts}} of where blocks begin and end, as far as said."""
    numbers = {} if before is None else {1: {entry: before}}
    if not view.attr("end_mask").i >> entry & 1:
        end = dataclasses.replace(blocks, outer=blocks.outer + (before.outer if before else 0))
        numbers[2] = {entry: end}
    return numbers


def strided_slice_gradient(view: OpView) -> Answer:
    """StridedSliceGrad: puts input 4 into zeros of the shape that input 0 holds."""
    result = view.result()
    spec = _strides(view, result)
    rows = [None, None, None, None, spec.outs]
    answer = split_by_factors(view, rows, [spec.rows], adds_up=True, shape_inputs={0: 0})
    if not isinstance(answer, Split):
        return _gradient_of_blocks(view, spec, result) or answer
    state = answer.outputs[0]
    end = spec.ends.get(state.axis) if isinstance(state, Sharded) else None
    if end is None or not isinstance(state, Sharded):
        return answer
    return dataclasses.replace(answer, shape_inputs={**answer.shape_inputs, 2: {end: state}})


def _gradient_of_blocks(view: OpView, spec: "_Strides", result: tuple[int, ...]) -> Split | None:
    """Zeros where the batches lie that were not taken."""
    state = view.inputs[4].state
    if not isinstance(state, Sharded):
        return None
    axis = next((a for a, each in spec.ranges.items() if each.axis == state.axis), None)
    if axis is None:
        return None
    whole = dataclasses.replace(state, axis=axis).blocks_of(result, view.batch)
    if whole is None:
        return None
    taken = spec.ranges[axis]
    found = _blocks(whole, taken.begin, taken.end, view.batch)
    if found is None:
        return None
    numbers = {0: {axis: whole}, **_begin_and_end(view, taken.entry, *found)}
    return Split((WHOLE, WHOLE, WHOLE, WHOLE, state), (whole,), numbers)


class _Range(NamedTuple):
    """Which part of an axis is sliced, in steps of one; `entry` says so, the slice's `axis` is."""

    entry: int
    axis: int
    begin: int
    end: int


class _Strides(NamedTuple):
    """What a strided slice does with each axis.

    Attributes:
      rows, outs: labels of what is sliced and of the slice.
      ends: {axis that is taken whole: entry of `end` that names its size}.
      ranges: {axis of which a part is taken: that part}.
    """

    rows: list[str | None]
    outs: list[str | None]
    ends: dict[int, int]
    ranges: dict[int, _Range]


class SliceEntry(NamedTuple):
    """What a StridedSlice does with one axis of its input, or a new one.

    Attributes:
      axis: of the input; None for a new one.
      entry: of begin, end and strides; None where the axis is taken as it is.
      is_shrunk: whether one element is taken, and no axis is left.
      has_begin, has_end: whether begin and end count there.
    """

    axis: int | None
    entry: int | None = None
    is_shrunk: bool = False
    has_begin: bool = False
    has_end: bool = False


def slice_entries(node: NodeDef, strides: Sized, rank: int) -> Iterator[SliceEntry]:
    """What a StridedSlice does with an input of so many axes, in the order of its output's."""
    mask = {name: attr_of(node, f"{name}_mask").i for name in
            ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    axis = 0
    for entry in range(len(strides)):
        if mask["ellipsis"] >> entry & 1:
            later = sum(not mask["new_axis"] >> i & 1 for i in range(entry + 1, len(strides)))
            yield from map(SliceEntry, range(axis, rank - later))
            axis = max(rank - later, axis)
        elif mask["new_axis"] >> entry & 1:
            yield SliceEntry(None)
        else:
            is_shrunk, has_no_begin, has_no_end = (
                bool(mask[name] >> entry & 1) for name in ("shrink_axis", "begin", "end")
            )
            yield SliceEntry(axis, entry, is_shrunk, not has_no_begin, not has_no_end)
            axis += 1
    yield from map(SliceEntry, range(axis, rank))


def _strides(view: OpView, shape: tuple[int, ...]) -> _Strides:
    """What it does with each axis.

    An axis that a mask takes whole is taken whole, wherever along another one a loop has come.
    """
    begin, end, strides = view.inputs[1].value, view.inputs[2].value, view.value(3)
    rows = axes(len(shape))
    outs: list[str | None] = []
    ends: dict[int, int] = {}
    ranges: dict[int, _Range] = {}
    for axis, entry, is_shrunk, has_begin, has_end in slice_entries(view.node, strides, len(shape)):
        if axis is None:
            outs.append(None)
            continue
        if is_shrunk:
            rows[axis] = None
            continue
        if entry is not None:
            start = _number(begin, entry, None if has_begin else 0)
            stop = _number(end, entry, None if has_end else shape[axis])
            if start is None or stop is None or int(strides[entry]) != 1:
                rows[axis] = None
            elif start not in (0, -shape[axis]) or stop < shape[axis]:
                rows[axis] = None
                ranges[axis] = _Range(entry, len(outs), start, min(stop, shape[axis]))
            elif has_end:
                ends[axis] = entry
        outs.append(rows[axis])
    return _Strides(rows, outs, ends, ranges)


def _number(numbers: np.ndarray | None, entry: int, instead: int | None) -> int | None:
    """An entry of begin or end; what a mask says instead of it, None where a run decides."""
    return instead if instead is not None or numbers is None else int(numbers[entry])


def pad(view: OpView) -> Answer:
    """Pad, PadV2, MirrorPad: axes that are not padded are apart; so are batches beside others."""
    state, paddings = view.inputs[0].state, view.value(1)
    labels = axes(len(view.shape()), {a for a, added in enumerate(paddings) if added.any()})
    if isinstance(state, Sharded) and "Mirror" not in view.node.op:
        added = [int(each) for each in paddings[state.axis]]
        unit = view.batch * state.inner
        if any(added) and not any(each % unit or each < 0 for each in added):
            blocks = [dataclasses.replace(state, outer=each // unit) for each in added]
            numbers = {2 * state.axis + i: each for i, each in enumerate(blocks) if each.outer}
            more = dataclasses.replace(state, outer=state.outer + sum(b.outer for b in blocks))
            return Split((state, *whole_inputs(view)[1:]), (more,), {1: numbers})
    return split_by_factors(view, [labels], [labels])

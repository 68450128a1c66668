"""Ops that take a range of each axis, or put it back: slices, strided slices, padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rewrite.split.factors import Factors, Labels, split_by_factors
from rewrite.split.op_view import Answer, OpView, Split
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.rules.reductions import UNKNOWN_AXES
from rewrite.split.states import Sharded


def slice_(view: OpView) -> Answer:
    """Slice: the batch axis must be taken whole; its size becomes the shard's."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    begin, size = view.inputs[1].value, view.inputs[2].value
    if shape is None or result is None or begin is None or size is None:
        return UNKNOWN_AXES
    kept = [int(begin[a]) == 0 and shape[a] == result[a] for a in range(len(shape))]
    labels: Labels = [x if kept[a] else None for a, x in enumerate(axes(len(shape)))]
    answer = split_by_factors(view, Factors([labels, None, None], [labels], adds_up=True))
    return _with_shapes(answer, {2: 0})


def _with_shapes(answer: Answer, output_of_input: Mapping[int, int]) -> Answer:
    """The same with inputs that hold the sizes of a sharded output's dimensions."""
    if not isinstance(answer, Split):
        return answer
    shapes = {}
    for position, output in output_of_input.items():
        state = answer.outputs[output]
        if isinstance(state, Sharded):
            shapes[position] = {state.axis: state}
    return dataclasses.replace(answer, shape_inputs=shapes)


def strided_slice(view: OpView) -> Answer:
    """StridedSlice: the batch axis must be taken whole, in its order."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    if shape is None or result is None:
        return UNKNOWN_SHAPE
    spec = _strides(view, shape)
    if spec is None:
        return UNKNOWN_AXES
    rows, outs, ends = spec
    answer = split_by_factors(view, Factors([rows, None, None, None], [outs], adds_up=True))
    if not isinstance(answer, Split) or not isinstance(answer.inputs[0], Sharded):
        return answer
    end = ends.get(answer.inputs[0].axis)
    if end is None:  # the mask says that the end doesn't count
        return answer
    return dataclasses.replace(answer, shape_inputs={2: {end: answer.inputs[0]}})


def strided_slice_gradient(view: OpView) -> Answer:
    """StridedSliceGrad: puts input 4 into zeros of the shape that input 0 holds."""
    result = view.output_shapes[0]
    if result is None:
        return UNKNOWN_SHAPE
    spec = _strides(view, result)
    if spec is None:
        return UNKNOWN_AXES
    rows, outs, ends = spec
    answer = split_by_factors(view, Factors([None, None, None, None, outs], [rows], adds_up=True))
    if not isinstance(answer, Split) or not isinstance(answer.outputs[0], Sharded):
        return answer
    state = answer.outputs[0]
    shapes = {0: {state.axis: state}}
    end = ends.get(state.axis)
    if end is not None:
        shapes[2] = {end: state}
    return dataclasses.replace(answer, shape_inputs=shapes)


def _strides(
    view: OpView, shape: tuple[int, ...]
) -> tuple[list[str | None], list[str | None], dict[int, int]] | None:
    """Labels of what is sliced and of the slice; {axis: entry of `end` that names its size}.

    Args:
      view: an op whose inputs 1, 2 and 3 are begin, end and strides.
      shape: of what is sliced.
    """
    begin, end, strides = (each.value for each in view.inputs[1:4])
    if begin is None or end is None or strides is None:
        return None
    mask = {name: view.attr(f"{name}_mask").i for name in
            ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    rows: list[str | None] = [f"d{a}" for a in range(len(shape))]
    outs: list[str | None] = []
    ends: dict[int, int] = {}
    axis = 0
    for entry in range(len(begin)):
        if mask["ellipsis"] >> entry & 1:
            later = sum(not mask["new_axis"] >> i & 1 for i in range(entry + 1, len(begin)))
            while axis < len(shape) - later:
                outs.append(rows[axis])
                axis += 1
        elif mask["new_axis"] >> entry & 1:
            outs.append(None)
        elif mask["shrink_axis"] >> entry & 1:
            rows[axis] = None
            axis += 1
        else:
            is_all = bool(mask["begin"] >> entry & 1) or int(begin[entry]) in (0, -shape[axis])
            is_end_open = bool(mask["end"] >> entry & 1)
            is_all = is_all and (is_end_open or int(end[entry]) >= shape[axis])
            if not is_all or int(strides[entry]) != 1:
                rows[axis] = None
            elif not is_end_open:
                ends[axis] = entry
            outs.append(rows[axis])
            axis += 1
    outs.extend(rows[axis:])
    return rows, outs, ends


def pad(view: OpView) -> Answer:
    """Pad, PadV2, MirrorPad: axes that are not padded are apart."""
    shape, paddings = view.inputs[0].shape, view.inputs[1].value
    if shape is None or paddings is None:
        return UNKNOWN_AXES
    labels: Labels = [
        x if not paddings[axis].any() else None for axis, x in enumerate(axes(len(shape)))
    ]
    inputs = [labels if i == 0 else None for i in range(len(view.inputs))]
    return split_by_factors(view, Factors(inputs, [labels]))

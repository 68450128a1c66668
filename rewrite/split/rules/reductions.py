"""Reductions over axes that an input names, or an equation."""

import dataclasses
import functools
from collections.abc import Sequence

from graphs.protos import is_open
from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.factors import axes, broadcast, cut, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, OpView
from rewrite.split.states import Partial


def reduction(view: OpView, combine: str, is_mean: bool = False) -> Answer:
    """Sum, Mean, Max ...: input 1 names the axes."""
    rank, dtype = len(view.shape()), view.output_dtypes[0]
    reduced = view.axes(1, rank)
    if is_mean and "float" not in dtype:
        if "complex" in dtype:
            return StayWhole("no rule says how averages of complex numbers are split")
        return StayWhole("an average of whole numbers is rounded, so averages of parts differ")
    kept = axes(rank, reduced)
    out = kept if view.attr("keep_dims").b else cut(kept)
    answer = split_by_factors(view, [axes(rank)], [out], combine, adds_up=combine == "sum")
    is_mean = is_mean and bool(view.sharded)
    if not is_mean or not isinstance(answer, Split) or not isinstance(answer.outputs[0], Partial):
        return answer
    if dtype == "float16":
        return StayWhole("its sum may be too large for float16, and those of parts not")
    return dataclasses.replace(answer, is_mean=True)


sum_ = functools.partial(reduction, combine="sum")
mean = functools.partial(reduction, combine="sum", is_mean=True)


def along_axis(view: OpView, position: int = 1) -> Answer:
    """Cumsum, ArgMax, ReverseV2 and their like: apart along all axes but those an input names."""
    rank, num_left = len(view.shape()), len(view.result())
    labels = axes(rank, view.axes(position, rank))
    kept = labels if num_left == rank else cut(labels)
    return split_by_factors(view, [labels], [kept] * len(view.output_shapes))


roll = functools.partial(along_axis, position=2)


def einsum(view: OpView) -> Answer:
    """As its equation says; a label that a tensor has twice, a diagonal, is not cut."""
    left, _, out = view.attr("equation").s.decode().replace(" ", "").partition("->")
    shapes = [each.shape for each in view.inputs]
    rows = _with_ellipses([*left.split(","), out], [*shapes, view.output_shapes[0]])
    if rows is None:
        return UNKNOWN_SHAPE
    twice = {label for row in rows for label in row if row.count(label) > 1}
    *inputs, made = [[None if label in twice else label for label in row] for row in rows]
    return split_by_factors(view, inputs, [made], "sum")


def _with_ellipses(
    rows: Sequence[str], shapes: Sequence[tuple[int, ...] | None]
) -> list[list[str | None]] | None:
    """A label for each dimension, also of those that an ellipsis stands for; None if not known."""
    if not any("..." in row for row in rows):
        return [list(row) for row in rows]
    if "..." not in rows[-1] or any(is_open(shape) for shape in shapes):
        return None  # a dimension of unknown size may be one that is stretched
    parts = [row.partition("...") for row in rows]
    meant = [
        (shape or ())[len(before) : len(shape or ()) - len(after)]
        for (before, _, after), shape in zip(parts, shapes, strict=True)
    ]
    return [
        [*before, *broadcast(own, meant[-1]), *after] if dots else [*before]
        for (before, dots, after), own in zip(parts, meant, strict=True)
    ]

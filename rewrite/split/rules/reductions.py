"""Reductions over named axes."""

import functools
from collections.abc import Sequence

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.rules.factors import Factors, split_by_factors
from rewrite.split.rules.op_view import OpView

UNKNOWN_AXES = StayWhole("the axes that it works along are not known before the run")


def known_axes(view: OpView, position: int, rank: int) -> list[int] | None:
    """The axes that an input names, none of them negative; None where a run decides."""
    value = view.inputs[position].value
    if value is None:
        return None
    return [int(axis) % max(rank, 1) for axis in value.reshape(-1)]


def reduction(view: OpView, combine: str, is_mean: bool = False) -> Answer:
    """Sum, Mean, Max ...: input 1 names the axes."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    reduced = known_axes(view, 1, len(shape))
    if reduced is None:
        return UNKNOWN_AXES
    dtype = view.output_dtypes[0]
    if is_mean and "float" not in dtype:
        if "complex" in dtype:
            return StayWhole("no rule says how averages of complex numbers are split")
        return StayWhole("an average of whole numbers is rounded, so averages of parts differ")
    labels = axes(len(shape))
    if view.attr("keep_dims").b:
        out = [None if axis in reduced else label for axis, label in enumerate(labels)]
    else:
        out = [label for axis, label in enumerate(labels) if axis not in reduced]
    combined = {labels[axis]: combine for axis in reduced}
    answer = split_by_factors(
        view, Factors([labels, None], [out], combined, adds_up=combine == "sum", is_mean=is_mean)
    )
    if dtype == "float16" and isinstance(answer, Split) and answer.is_mean:
        return StayWhole("its sum may be too large for float16, and those of parts not")
    return answer


sum_ = functools.partial(reduction, combine="sum")
mean = functools.partial(reduction, combine="sum", is_mean=True)


def l2_loss(view: OpView) -> Answer:
    """Half the sum of squares: of parts it adds up, of terms it doesn't."""
    shape = view.inputs[0].shape
    if shape is None:
        return UNKNOWN_SHAPE
    labels = axes(len(shape))
    return split_by_factors(view, Factors([labels], [[]], dict.fromkeys(labels, "sum")))


def along_axis(view: OpView, position: int = 1) -> Answer:
    """Cumsum, ArgMax and their like: apart along all axes but the one that an input names."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    if shape is None or result is None:
        return UNKNOWN_SHAPE
    along = known_axes(view, position, len(shape))
    if along is None:
        return UNKNOWN_AXES
    labels: Sequence[str | None] = [
        None if axis in along else label for axis, label in enumerate(axes(len(shape)))
    ]
    kept = (
        labels if len(result) == len(shape) else [x for a, x in enumerate(labels) if a not in along]
    )
    inputs = [labels if i == 0 else None for i in range(len(view.inputs))]
    return split_by_factors(view, Factors(inputs, [kept] * len(view.output_shapes)))

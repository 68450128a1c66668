"""Ops that read or add up rows by number."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from rewrite.split.factors import Factors, Labels, split_by_factors
from rewrite.split.op_view import Answer, OpView, Split, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.states import Partial

LARGE = StayWhole("its result is larger than the rows that it adds up, which are joined instead")


def unsorted_segment(view: OpView, combine: str = "sum") -> Answer:
    """UnsortedSegmentSum and its like: rows by the numbers of their segments.

    Each part has its own terms of all segments. That pays where these are fewer than the rows.
    """
    data, ids, result = view.inputs[0].shape, view.inputs[1].shape, view.output_shapes[0]
    if data is None or ids is None or result is None or min(result, default=1) < 0:
        return UNKNOWN_SHAPE
    rows = axes(len(data))
    return _cheap(
        view,
        result,
        Factors(
            [rows, rows[: len(ids)], None],
            [[None, *rows[len(ids) :]]],
            dict.fromkeys(rows[: len(ids)], combine),
        ),
    )


def scatter_nd(view: OpView) -> Answer:
    """ScatterNd: adds rows up at the places that input 0 names, in zeros."""
    indices, updates, result = view.inputs[0].shape, view.inputs[1].shape, view.output_shapes[0]
    if indices is None or updates is None or result is None or min(result, default=1) < 0:
        return UNKNOWN_SHAPE
    leading = axes(len(indices) - 1)
    rows: Labels = [*leading, *[None] * (len(updates) - len(leading))]
    factors = Factors(
        [[*leading, None], rows, None], [[None] * len(result)], dict.fromkeys(leading, "sum")
    )
    return _cheap(view, result, factors)


def _cheap(view: OpView, result: Sequence[int], factors: Factors) -> Answer:
    """The answer, unless the terms of two parts are more than all that they are made of."""
    answer = split_by_factors(view, factors)
    rows = max(math.prod(each.shape or ()) for each in view.inputs)
    if not isinstance(answer, Split) or 2 * math.prod(result) <= rows:
        return answer
    return LARGE if isinstance(answer.outputs[0], Partial) else answer


def gather_nd(view: OpView) -> Answer:
    """GatherNd: what lies in a whole tensor at the places that input 1 names."""
    indices, result = view.inputs[1].shape, view.output_shapes[0]
    if (
        indices is None
        or result is None
        or view.attr("bad_indices_policy").s not in (b"", b"DEFAULT")
    ):
        return UNKNOWN_SHAPE
    leading = axes(len(indices) - 1)
    out: Labels = [*leading, *[None] * (len(result) - len(leading))]
    return split_by_factors(view, Factors([None, [*leading, None]], [out]))


unsorted_segment_max = functools.partial(unsorted_segment, combine="max")
unsorted_segment_min = functools.partial(unsorted_segment, combine="min")
unsorted_segment_prod = functools.partial(unsorted_segment, combine="prod")

"""Ops that read rows by number, or add them up."""

import functools
import math
from collections.abc import Sequence

import numpy as np

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView
from rewrite.split.rules.reductions import UNKNOWN_AXES
from rewrite.split.states import WHOLE, Partial, Sharded

SEGMENTS = frozenset(
    "UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd".split()
)
LARGE = StayWhole("its result is larger than the rows that it adds up, which are joined instead")
NOT_A_NUMBER = StayWhole("what it makes of a NaN depends on the rows behind it, which are joined")


def unsorted_segment(view: OpView, combine: str = "sum") -> Answer:
    """UnsortedSegmentSum and its like: rows by the numbers of their segments.

    Each part has its own terms of all segments. That pays where these are fewer than the rows.
    """
    data, ids, result = view.inputs[0].shape, view.inputs[1].shape, view.output_shapes[0]
    if data is None or ids is None or result is None or min(result, default=1) < 0:
        return UNKNOWN_SHAPE
    if (own := _within_entries(view)) is not None:
        return own
    rows = axes(len(data))
    answer = _cheap(
        view,
        result,
        Factors(
            [rows, rows[: len(ids)], None],
            [[None, *rows[len(ids) :]]],
            dict.fromkeys(rows[: len(ids)], combine),
        ),
    )
    is_forgetful = combine in ("max", "min") and "float" in view.output_dtypes[0]
    if is_forgetful and isinstance(answer, Split) and isinstance(answer.outputs[0], Partial):
        return NOT_A_NUMBER  # a row behind a NaN takes its place; a sum keeps it
    return answer


def _within_entries(view: OpView) -> Split | None:
    """Where each batch entry's rows are added up to rows of its own."""
    ids, rows = view.inputs[1].state, Sharded(0, 1, view.inputs[1].block)
    if not rows.inner or not isinstance(ids, Sharded) or (ids.axis, ids.outer) != (0, 1):
        return None
    if view.inputs[0].state != ids or len(view.inputs[1].shape or ()) != 1:
        return None
    return Split((ids, ids, WHOLE), (rows,), {2: {0: rows}}, row_inputs={1: rows})


def scatter_nd(view: OpView) -> Answer:
    """ScatterNd: adds rows up at the places that input 0 names, in zeros."""
    indices, updates, result = view.inputs[0].shape, view.inputs[1].shape, view.output_shapes[0]
    if indices is None or updates is None or result is None or min(result, default=1) < 0:
        return UNKNOWN_SHAPE
    if view.output_dtypes[0] in ("bool", "string"):
        return StayWhole("texts and truth values are no terms of a sum")
    leading = axes(len(indices) - 1)
    rows: Labels = [*leading, *[None] * (len(updates) - len(leading))]
    factors = Factors(
        [[*leading, None], rows, None], [[None] * len(result)], dict.fromkeys(leading, "sum")
    )
    return _cheap(view, result, factors)


def tensor_scatter(view: OpView) -> Answer:
    """TensorScatterUpdate and its like: places along the first axes are written, all others apart.

    Input 1 names places [..., k] along the first k axes, input 2 has what is written there.
    """
    shape, places, rows = (each.shape for each in view.inputs)
    if shape is None or not places or rows is None or places[-1] < 0:
        return UNKNOWN_SHAPE
    named: Labels = [None] * places[-1]
    labels = [*named, *axes(len(shape))[len(named) :]]
    written = [*[None] * (len(places) - 1), *labels[len(named) :]]
    return split_by_factors(view, Factors([labels, None, written], [labels]))


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
    if indices is None or result is None:
        return UNKNOWN_SHAPE
    is_read = view.node.op == "ResourceGatherNd"  # of a variable; it knows no policy
    if not is_read and view.attr("bad_indices_policy").s not in (b"", b"DEFAULT"):
        return UNKNOWN_SHAPE
    leading = axes(len(indices) - 1)
    out: Labels = [*leading, *[None] * (len(result) - len(leading))]
    return split_by_factors(view, Factors([None, [*leading, None]], [out]))


def gather(view: OpView) -> Answer:
    """GatherV2: rows of input 0 along an axis, by input 1."""
    shape, ids, axis = view.inputs[0].shape, view.inputs[1].shape, view.inputs[2].value
    if shape is None or ids is None:
        return UNKNOWN_SHAPE
    if axis is None:
        return UNKNOWN_AXES
    at, batch_dims = int(axis) % len(shape), view.attr("batch_dims").i
    if _reads_all(view) and (at, batch_dims) == (0, 0):
        rows = Sharded(0)
        return Split((rows, rows, WHOLE), (rows,), row_inputs={1: rows})
    batch_dims += len(ids) if batch_dims < 0 else 0  # it may be counted from the last one
    labels, of_ids = axes(len(shape)), [f"i{a}" for a in range(len(ids))]
    for shared in range(batch_dims):
        of_ids[shared] = labels[shared]
    row: Labels = [None if a == at else x for a, x in enumerate(labels)]
    out: Labels = [*labels[:at], *of_ids[batch_dims:], *labels[at + 1 :]]
    return split_by_factors(view, Factors([row, of_ids, None], [out]))


def _reads_all(view: OpView) -> bool:
    """Whether it reads every entry of the batch once, in order, as vectorized loops do."""
    rows, ids = view.inputs[0].state, view.inputs[1].value
    return rows == Sharded(0) and ids is not None and np.array_equal(ids, np.arange(view.batch))


def gather_v1(view: OpView) -> Answer:
    """Gather: rows of input 0, by input 1."""
    shape, ids = view.inputs[0].shape, view.inputs[1].shape
    if shape is None or ids is None:
        return UNKNOWN_SHAPE
    of_ids, labels = [f"i{a}" for a in range(len(ids))], axes(len(shape))[1:]
    return split_by_factors(view, Factors([[None, *labels], of_ids], [[*of_ids, *labels]]))


def resource_gather(view: OpView) -> Answer:
    """ResourceGather: rows of a variable, by input 1."""
    if view.attr("batch_dims").i:
        return StayWhole("it reads rows of a variable for each entry of the batch")
    ids, result = view.inputs[1].shape, view.output_shapes[0]
    if ids is None or result is None:
        return UNKNOWN_SHAPE
    labels = axes(len(ids))
    out: Labels = [*labels, *[None] * (len(result) - len(ids))]
    return split_by_factors(view, Factors([None, labels], [out]))


def one_hot(view: OpView) -> Answer:
    """OneHot: a new axis in the result."""
    shape, result = view.inputs[0].shape, view.output_shapes[0]
    if shape is None or result is None:
        return UNKNOWN_SHAPE
    axis = view.attr("axis").i % len(result)
    labels = axes(len(shape))
    out: Labels = [*labels[:axis], None, *labels[axis:]]
    return split_by_factors(view, Factors([labels, None, None, None], [out]))


unsorted_segment_max = functools.partial(unsorted_segment, combine="max")
unsorted_segment_min = functools.partial(unsorted_segment, combine="min")
unsorted_segment_prod = functools.partial(unsorted_segment, combine="prod")

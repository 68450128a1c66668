"""Ops that read rows by number, or add them up."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from graphs.protos import is_open
from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.factors import ACROSS, Labels, axes, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, OpView
from rewrite.split.rules.rows import by_row
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
    rows, num_ids = axes(len(view.shape())), len(view.shape(1))
    if is_open(view.result()):
        return UNKNOWN_SHAPE
    if (own := _within_entries(view)) is not None:
        return own
    answer = _cheap(view, [rows, rows[:num_ids]], [None, *rows[num_ids:]], combine)
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
    rank, result = len(view.shape()) - 1, view.result()
    if is_open(result):
        return UNKNOWN_SHAPE
    if view.output_dtypes[0] in ("bool", "string"):
        return StayWhole("texts and truth values are no terms of a sum")
    rows = axes(len(view.shape(1)), range(rank, len(view.shape(1))))
    return _cheap(view, [axes(rank), rows], [None] * len(result), "sum")


def tensor_scatter(view: OpView) -> Answer:
    """TensorScatterUpdate and its like: places along the first axes are written, all others apart.

    Input 1 names places [..., k] along the first k axes, input 2 has what is written there.
    """
    places = view.shape(1)
    if not places or places[-1] < 0 or view.inputs[2].shape is None:
        return UNKNOWN_SHAPE
    labels = axes(len(view.shape()), range(places[-1]))
    written = [*[None] * (len(places) - 1), *labels[places[-1] :]]
    return split_by_factors(view, [labels, None, written], [labels])


def _cheap(view: OpView, inputs: Sequence[Labels], output: Labels, combine: str) -> Answer:
    """The answer, unless the terms of two parts are more than all that they are made of."""
    answer = split_by_factors(view, inputs, [output], combine)
    rows = max(math.prod(each.shape or ()) for each in view.inputs)
    if not isinstance(answer, Split) or 2 * math.prod(view.result()) <= rows:
        return answer
    return LARGE if isinstance(answer.outputs[0], Partial) else answer


def gather_nd(view: OpView) -> Answer:
    """GatherNd: what lies in a whole tensor at the places that input 1 names, or it fails."""
    return by_row(view) if view.attr("bad_indices_policy").s in (b"", b"DEFAULT") else UNKNOWN_SHAPE


def gather(view: OpView) -> Answer:
    """GatherV2: rows of input 0 along an axis, by input 1."""
    rank, num_ids = len(view.shape()), len(view.shape(1))
    [at], batch_dims = view.axes(2, rank), view.attr("batch_dims").i
    if _reads_all(view) and (at, batch_dims) == (0, 0):
        rows = Sharded(0)
        return Split((rows, rows, WHOLE), (rows,), row_inputs={1: rows})
    batch_dims += num_ids if batch_dims < 0 else 0  # it may be counted from the last one
    labels = axes(rank)
    of_ids = [*labels[:batch_dims], *(f"i{a}" for a in range(batch_dims, num_ids))]
    out = [*labels[:at], *of_ids[batch_dims:], *labels[at + 1 :]]
    return split_by_factors(view, [axes(rank, [at]), of_ids], [out])


def _reads_all(view: OpView) -> bool:
    """Whether it reads every entry of the batch once, in order, as vectorized loops do."""
    rows, ids = view.inputs[0].state, view.inputs[1].value
    return rows == Sharded(0) and ids is not None and np.array_equal(ids, np.arange(view.batch))


def gather_v1(view: OpView) -> Answer:
    """Gather: rows of input 0, by input 1."""
    labels, of_ids = axes(len(view.shape()), [0]), [f"i{a}" for a in range(len(view.shape(1)))]
    return split_by_factors(view, [labels, of_ids], [[*of_ids, *labels[1:]]])


def resource_gather(view: OpView) -> Answer:
    """ResourceGather: rows of a variable, by input 1."""
    if view.attr("batch_dims").i:
        return StayWhole("it reads rows of a variable for each entry of the batch")
    table = view.states[0]
    if not isinstance(table, Sharded):
        return by_row(view)
    columns = dataclasses.replace(table, axis=table.axis - 1 + len(view.shape(1)))
    return Split((table, WHOLE), (columns,)) if table.axis else ACROSS

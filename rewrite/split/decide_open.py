"""Decides for a step that takes any batch size: what holds for one size has to hold for others."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of
from graphs.source_model import TensorSpec
from rewrite.split.decide import Decisions, decide
from rewrite.split.op_view import Split
from rewrite.split.states import Sharded, State
from rewrite.split.step_tensors import tensor_name

DIFFERS = "what becomes of it is not the same for every batch size"
ROWS_BY_NUMBER = "its row numbers depend on where in the batch a shard begins, of any batch size"
OTHER_DIMENSION = "another dimension than the batch is open, too"
_MORE_ENTRIES = 3
_MORE_ELEMENTS = 1


def decide_open(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    kept_whole: Mapping[str, str] | None = None,
) -> Decisions | None:
    """Decides twice, at two sizes of everything that is open, and keeps what agrees.

    A number in the graph that only happens to be the batch's size is told apart by this, and so
    is a shape that happens to look like another one.

    Args:
      flat, properties, batch, axis_of_feed, kept_whole: as for `decide`, at one batch size.
      open_axes: {fed tensor: its axes of any size}.

    Returns:
      The decisions; of any batch size where the step runs with another one, else of this one, and
      of any size of what else is open. None where nothing that is open can have another size.
    """
    axis_of_feed, open_axes, more, larger = _other_size(flat, batch, axis_of_feed, open_axes)
    if larger is None:
        return None
    other_flat, other_properties = larger
    kept_whole = dict(kept_whole or {})
    while True:
        first = decide(flat, properties, batch, axis_of_feed, kept_whole)
        second = decide(other_flat, other_properties, batch + more, axis_of_feed, kept_whole)
        differing = {
            node.name: why
            for node in flat.graph_def.node
            if node.name not in kept_whole and (why := _difference(node, first, second))
        }
        if not differing:
            return dataclasses.replace(first, is_open=True, open_axes=dict(open_axes))
        kept_whole.update(differing)


def _other_size(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
) -> tuple[
    Mapping[str, int], Mapping[str, Sequence[int]], int, tuple[FlatGraph, TensorProperties] | None
]:
    """Inputs that hold the batch, what is open, so many more entries, and the step with these.

    An input of a fixed size is no part of a batch of any size.
    """
    growing = {feed: a for feed, a in axis_of_feed.items() if a in open_axes.get(feed, ())}
    # Twice the batch is as many pairs, of whatever it may be.
    for more in (_MORE_ENTRIES, batch) if growing else ():
        larger = larger_step(flat, growing, open_axes, more)
        if larger is not None:
            return growing, open_axes, more, larger
    others = {
        feed: [axis for axis in axes if axis != axis_of_feed.get(feed)]
        for feed, axes in open_axes.items()
    }
    larger = larger_step(flat, axis_of_feed, others, 0)
    if larger is not None and list(larger[0].feeds) == list(flat.feeds):
        larger = None
    return axis_of_feed, others, 0, larger


def larger_step(
    flat: FlatGraph,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    more: int,
) -> tuple[FlatGraph, TensorProperties] | None:
    """The step with so many more entries in its batch, and more of all else that is open.

    That is one more, so that nothing open is taken for the batch; where the step doesn't run so,
    as many more as the batch has where it has the batch's size (a matrix of pairs of entries), or
    as many times more (edges between entries).

    Returns:
      The step and its tensors; None where it does not run so.
    """
    batch = next(s.shape[axis_of_feed[s.tensor]] for s in flat.feeds
                 if s.shape and s.tensor in axis_of_feed)  # fmt: skip
    tried = []
    for grown in (_by_one, _with_batch, _in_proportion):
        feeds = [
            _larger(spec, axis_of_feed, open_axes, more, functools.partial(grown, batch, more))
            for spec in flat.feeds
        ]
        if feeds in tried:
            continue
        tried.append(feeds)
        larger = dataclasses.replace(flat, feeds=feeds, graph_def=_with_shapes(flat, feeds))
        with contextlib.suppress(ModelError):
            return larger, infer_known(larger)
    return None


def _by_one(batch: int, more: int, size: int) -> int:
    del batch, more
    return size + _MORE_ELEMENTS


def _with_batch(batch: int, more: int, size: int) -> int:
    return size + (more if size == batch else _MORE_ELEMENTS)


def _in_proportion(batch: int, more: int, size: int) -> int:
    is_even = size * (batch + more) % batch == 0
    return size * (batch + more) // batch if is_even else size + _MORE_ELEMENTS


def _larger(
    spec: TensorSpec,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    more: int,
    grown: Callable[[int], int],
) -> TensorSpec:
    shape = list(spec.shape or ())
    for axis in open_axes.get(spec.tensor, ()):
        is_batch = axis_of_feed.get(spec.tensor) == axis
        shape[axis] = shape[axis] + more if is_batch else grown(shape[axis])
    return dataclasses.replace(spec, shape=tuple(shape))


def _with_shapes(flat: FlatGraph, feeds: Sequence[TensorSpec]) -> Any:
    from graphs.loading.feed_shapes import write_shapes

    return write_shapes(flat.graph_def, feeds)


def _difference(node: Any, first: Decisions, second: Decisions) -> str:
    """Why an op can't be split for every size; empty where it can, or stays whole."""
    one, two = first.answer_of_op[node.name], second.answer_of_op[node.name]
    if not isinstance(one, Split):
        return DIFFERS if isinstance(two, Split) else ""
    if one != two:
        return DIFFERS
    if one.row_inputs:
        return ROWS_BY_NUMBER
    data = data_inputs(node)
    for position, entries in one.shape_inputs.items():
        value = second.values.value(tensor_name(data[position]))
        for entry, state in entries.items():
            size = None if value is None else int(value.reshape(-1)[entry])
            if size not in (-1, state.size(second.batch)):
                return DIFFERS
    tensors = [*map(tensor_name, data), *(f"{node.name}:{i}" for i in range(len(one.outputs)))]
    for tensor, each in zip(tensors, (*one.inputs, *one.outputs), strict=True):
        if _is_open_elsewhere(tensor, each, first.properties, second.properties):
            return OTHER_DIMENSION
    return ""


def _is_open_elsewhere(
    tensor: str, state: State, properties: TensorProperties, other: TensorProperties
) -> bool:
    """Whether a tensor whose parts are taken apart by their shape has no such fixed shape."""
    if not isinstance(state, Sharded) or state.outer == 1:
        return False
    op, _, index = tensor.partition(":")
    shapes = [each.shape_of[op][int(index)] or () for each in (properties, other)]
    return [s for a, s in enumerate(shapes[0]) if a != state.axis] != [
        s for a, s in enumerate(shapes[1]) if a != state.axis
    ]


def open_axes_of(
    declared: Mapping[str, Sequence[int] | None], feeds: Sequence[TensorSpec]
) -> dict[str, list[int]]:
    """{fed tensor: axes of any size}, of what a model declares.

    Args:
      declared: {fed op: its shape, -1 for any size; None for any rank}.
      feeds: what a run is fed, with complete shapes.
    """
    found = {}
    for spec in feeds:
        shape = declared.get(op_of(spec.tensor), spec.shape)
        sizes = [-1] * len(spec.shape or ()) if shape is None else shape
        axes = [axis for axis, size in enumerate(sizes) if size < 0]
        if axes:
            found[spec.tensor] = axes
    return found

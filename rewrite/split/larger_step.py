"""A step at other sizes of its batch: what holds at one size need not hold at all."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, tensor_of
from graphs.source_model import TensorSpec
from rewrite.split.decide import Decisions
from rewrite.split.states import Sharded

_MORE_ELEMENTS = 1
_FAR, _FAR_REMAINDER = 32, 5


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


def at_far_size(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
) -> tuple[int, TensorProperties] | None:
    """A much larger batch, and the step's tensors there; None where it does not run so."""
    for far in (_FAR * batch + _FAR_REMAINDER, _FAR * batch):
        larger = larger_step(flat, axis_of_feed, open_axes, far - batch)
        if larger is not None:
            return far, larger[1]
    return None


def of_another_size(
    flat: FlatGraph, decisions: Decisions, far: tuple[int, TensorProperties] | None
) -> set[str]:
    """The first ops whose outputs are to be cut, though at a far size they have not the batch's."""
    found: set[str] = set()
    wrong: set[str] = set()
    if far is None:
        return found
    batch, properties = far
    for node in flat.graph_def.node:
        tensors = {tensor_of(name) for name in data_inputs(node)}
        for index, shape in enumerate(properties.shape_of[node.name]):
            state = decisions.state_of_tensor.get(f"{node.name}:{index}")
            if not isinstance(state, Sharded) or shape is None or len(shape) <= state.axis:
                continue
            if shape[state.axis] not in (-1, state.size(batch)):
                wrong.add(f"{node.name}:{index}")
                found |= set() if wrong & tensors else {node.name}
    return found

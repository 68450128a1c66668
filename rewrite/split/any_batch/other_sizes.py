"""A step at other sizes of its batch: what holds at one size need not hold at all."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, tensor_of
from graphs.protos import GraphDef
from graphs.source_model import TensorSpec
from graphs.tensor_protos import Shape
from rewrite.split.decide.decide import Decisions
from rewrite.split.states import Sharded, State

_MORE_ELEMENTS = 1
_FAR, _FAR_REMAINDER = 32, 5
LEAST_BATCH = 2
"""The fewest entries that a split batch has."""
_FEW = (1, 2, 3, 4, 6, 8, 12, 16)
_MANY = (2**14, 2**12, 2**10, 2**8, 2**6)


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
    for grown in (_by_one, _with_batch, _in_proportion, _by_one_less):
        feeds = [
            _larger(spec, axis_of_feed, open_axes, more, functools.partial(grown, batch, more))
            for spec in flat.feeds
        ]
        if feeds in tried:
            continue
        tried.append(feeds)
        if (larger := _inferred(flat, feeds)) is not None:
            return larger
    return None


def of_any_size(
    flat: FlatGraph, open_axes: Mapping[str, Sequence[int]]
) -> Mapping[str, Sequence[Shape]]:
    """{op: shapes of its outputs} as far as they are known whatever a run is fed, -1 beyond."""
    feeds = [_larger(spec, {}, open_axes, 0, lambda size: -1) for spec in flat.feeds]
    inferred = _inferred(flat, feeds)
    return {} if inferred is None else inferred[1].shape_of


def _inferred(
    flat: FlatGraph, feeds: Sequence[TensorSpec]
) -> tuple[FlatGraph, TensorProperties] | None:
    """The step that is fed so, and its tensors; None where it does not run so."""
    other = dataclasses.replace(flat, feeds=feeds, graph_def=_with_shapes(flat, feeds))
    with contextlib.suppress(ModelError):
        return other, infer_known(other)
    return None


def _by_one(batch: int, more: int, size: int) -> int:
    del batch, more
    return size + _MORE_ELEMENTS


def _by_one_less(batch: int, more: int, size: int) -> int:
    """Where no more fit: a table of as many positions."""
    del batch, more
    return max(1, size - 1)


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


def _with_shapes(flat: FlatGraph, feeds: Sequence[TensorSpec]) -> GraphDef:
    from graphs.loading.feed_shapes import write_shapes

    return write_shapes(flat.graph_def, feeds)


def following(
    flat: FlatGraph, larger: FlatGraph, axis_of_feed: Mapping[str, int]
) -> dict[str, dict[int, int]]:
    """See Decisions: the batch's axes, and those that grew as it did where nothing else ran.

    Args:
      flat, larger: the step, and the larger one that was found.
      axis_of_feed: {fed tensor: which axis is its batch}.
    """
    sizes = {
        (spec.tensor, axis): (size, (other.shape or ())[axis])
        for spec, other in zip(flat.feeds, larger.feeds, strict=True)
        for axis, size in enumerate(spec.shape or ())
        if size != (other.shape or ())[axis]
    }
    places = [each for each in axis_of_feed.items() if each in sizes]
    grown = {place: both for place, both in sizes.items() if place not in places}
    if places and any(more != size + _MORE_ELEMENTS for size, more in grown.values()):
        batch, larger_batch = sizes[places[0]]
        places += [p for p, (size, more) in grown.items() if size * larger_batch == more * batch]
    found: dict[str, dict[int, int]] = {}
    for feed, axis in places:
        found.setdefault(feed, {})[axis] = sizes[feed, axis][0]
    return found


def at_far_size(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
) -> tuple[int, TensorProperties] | None:
    """A much larger batch, and the step's tensors there; None where it does not run so.

    What loops make there is found, too: what isn't known would count as no part of the batch.
    """
    for far in (_FAR * batch + _FAR_REMAINDER, _FAR * batch):
        larger = larger_step(flat, axis_of_feed, open_axes, far - batch)
        if larger is not None:
            if not flat.unit_of_node:
                return far, larger[1]
            with contextlib.suppress(ModelError):
                return far, infer_known(larger[0], through_units=True)
    return None


def at_least_size(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
) -> tuple[int, TensorProperties] | None:
    """The smallest batch that can be split, and the step's tensors; None where it doesn't run."""
    smaller = larger_step(flat, axis_of_feed, open_axes, LEAST_BATCH - batch)
    return None if smaller is None else (LEAST_BATCH, smaller[1])


_Lengths = Mapping[tuple[str, int], int]
_Step = tuple[FlatGraph, TensorProperties]


def at_other_lengths(
    flat: FlatGraph,
    axes: Mapping[str, Sequence[int]],
    runs: Callable[[FlatGraph, TensorProperties], bool] = lambda flat, tensors: True,
) -> list[_Step]:
    """The step with as little as can be, and with very much, of what is open beside the batch.

    A window of at most four steps is as long in one of six as in one of seven, and so is half of
    both. Each axis has a size of its own, if the step runs so: else it has that of those that were
    as long and without which it doesn't run.

    Args:
      flat: the step.
      axes: {fed tensor: its axes of any size} without the batch's, and what follows the batch.
      runs: whether a step runs, as far as that is not seen in its shapes.

    Returns:
      The step and its tensors, less and more, as far as it runs so.
    """
    own = {(s.tensor, a): (s.shape or ())[a] for s in flat.feeds for a in axes.get(s.tensor, ())}
    found = []
    for sizes in (_fewer, _more):
        taken: _Lengths = own
        last: _Step | None = None
        for number, (place, size) in enumerate(own.items()):
            if taken[place] != size:
                continue
            alike = [each for each in own if own[each] == taken[each] == size]
            alone = next(_moved(flat, taken, [place], sizes(size, number)), None)
            if alone is not None and runs(*alone[1]):
                taken, last = alone
                continue
            together = _moved(flat, taken, alike, sizes(size, number))
            joined = next((each for each in together if runs(*each[1])), None)
            for other in alike:
                if joined is not None and other != place:
                    fewer = _moved(flat, joined[0], [other], [size])
                    joined = next((each for each in fewer if runs(*each[1])), joined)
            taken, last = joined or alone or (taken, last)
        found += [] if last is None else [last]
    return found


def _moved(
    flat: FlatGraph, taken: _Lengths, places: Sequence[tuple[str, int]], sizes: Sequence[int]
) -> Iterator[tuple[_Lengths, _Step]]:
    """The step with each size for all of these axes, where its shapes don't contradict it.

    Sizes at which something is empty, as all pairs of one step are, come last: they show little.
    """
    empty = []
    for size in sizes:
        lengths = {**taken, **dict.fromkeys(places, size)}
        if (step := _of_lengths(flat, lengths)) is None:
            continue
        if any("float" in dtype and 0 in (shape or ()) for op, shapes in step[1].shape_of.items()
               for dtype, shape in zip(step[1].dtype_of[op], shapes, strict=True)):  # fmt: skip
            empty.append((lengths, step))
        else:
            yield lengths, step
    yield from empty


def _fewer(size: int, number: int) -> list[int]:
    del number
    return [few for few in _FEW if few < size]


def _more(size: int, number: int) -> list[int]:
    return [many + 2 * number + 1 for many in _MANY if many > size] + [2 * size + number]


def _of_lengths(flat: FlatGraph, lengths: _Lengths) -> _Step | None:
    feeds = []
    for spec in flat.feeds:
        shape = tuple(lengths.get((spec.tensor, a), n) for a, n in enumerate(spec.shape or ()))
        feeds.append(dataclasses.replace(spec, shape=shape))
    return _inferred(flat, feeds)


def has_parts(shape: Shape, state: State, batch: int) -> bool:
    """Whether a tensor has the parts that a state says; where only the run knows, if it may."""
    if not isinstance(state, Sharded) or shape is None or len(shape) <= state.axis:
        return True
    size = shape[state.axis]
    if state.is_any:
        return size >= 0 and size % batch == 0
    return size == state.size(batch) or (size == -1 and state.size(1) == 1)


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
            if state is not None and not has_parts(shape, state, batch):
                wrong.add(f"{node.name}:{index}")
                found |= set() if wrong & tensors else {node.name}
    return found

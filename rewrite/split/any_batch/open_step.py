"""A step at other sizes of what is open in its inputs: what holds at one need not hold at all."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from graphs.building.shapes import TensorProperties, infer_known
from graphs.by_key import by_key
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.loading.feed_shapes import write_shapes
from graphs.protos import Shape
from rewrite.split.constant_folding import KnownValues

LEAST_BATCH = 2
"""The fewest entries that a split batch has."""
_MORE_ENTRIES = 3
_FAR, _FAR_REMAINDER = 32, 5
_FEW = (1, 2, 3, 4, 6, 8, 12, 16)
_MANY = (2**14, 2**12, 2**10, 2**8, 2**6)
Place = tuple[str, int]
"""An axis of a fed tensor."""


@dataclasses.dataclass(frozen=True, eq=False)
class OpenStep:
    """A step at one size of all that is open.

    Attributes:
      flat: the step.
      properties: of its tensors.
      batch: how many entries it has.
      axis_of_feed: {fed tensor: which axis is its batch}.
      open_axes: {fed tensor: its axes of any size}.
    """

    flat: FlatGraph
    properties: TensorProperties
    batch: int
    axis_of_feed: Mapping[str, int]
    open_axes: Mapping[str, Collection[int]]

    @functools.cached_property
    def values(self) -> KnownValues:
        """Of tensors that no run can change, at these sizes."""
        return KnownValues(self.flat, self.properties)

    @functools.cached_property
    def sizes(self) -> dict[Place, int]:
        """{axis of a fed tensor: its size}."""
        shapes = {spec.tensor: spec.shape or () for spec in self.flat.feeds}
        return {(feed, a): n for feed, shape in shapes.items() for a, n in enumerate(shape)}

    @property
    def open_sizes(self) -> dict[Place, int]:
        """The same of those that are open."""
        return {p: n for p, n in self.sizes.items() if p[1] in self.open_axes.get(p[0], ())}

    def with_open(self, open_axes: Mapping[str, Collection[int]]) -> "OpenStep":
        """The step, of which these axes are of any size."""
        return dataclasses.replace(self, open_axes=open_axes)

    def of_graph(self, flat: FlatGraph) -> "OpenStep":
        """Another graph, that is fed the same."""
        return dataclasses.replace(self, flat=flat, properties=infer_known(flat))

    def fed(self, sizes: Mapping[Place, int], batch: int = 0) -> "OpenStep | None":
        """The step with these sizes, and another batch; None where it does not run so."""
        feeds = []
        for spec in self.flat.feeds:
            shape = tuple(sizes.get((spec.tensor, a), n) for a, n in enumerate(spec.shape or ()))
            feeds.append(dataclasses.replace(spec, shape=shape))
        with contextlib.suppress(ModelError):
            graph_def = write_shapes(self.flat.graph_def, feeds)
            step = self.of_graph(dataclasses.replace(self.flat, feeds=feeds, graph_def=graph_def))
            return dataclasses.replace(step, batch=batch or self.batch)
        return None

    def larger(self, more: int) -> "OpenStep | None":
        """The step with so many more entries in its batch, and more of all else that is open.

        That is one more, so that nothing open is taken for the batch; where the step doesn't run
        so, as many more as the batch has where it has the batch's size (a matrix of pairs of
        entries), or as many times more (edges between entries); or one less, where no more fit (a
        table of as many positions). None where it runs in no way.
        """
        tried = []
        for grown in (_by_one, _with_batch, _in_proportion, _by_one_less):
            sizes = {
                (feed, axis): size + more
                if self.axis_of_feed.get(feed) == axis
                else grown(size, self.batch, more)
                for (feed, axis), size in self.open_sizes.items()
            }
            if sizes not in tried:
                tried.append(sizes)
                if (larger := self.fed(sizes, self.batch + more)) is not None:
                    return larger
        return None

    def grown(self) -> "Iterator[tuple[OpenStep, OpenStep]]":
        """The step and a larger one that it runs as, of which the first is to be taken.

        Of the step only those inputs hold the batch, and only that is open, that has another size
        in the larger one. An input of a fixed size is no part of a batch of any size.
        """
        growing = {f: a for f, a in self.axis_of_feed.items() if a in self.open_axes.get(f, ())}
        # Twice the batch is as many pairs, of whatever it may be. Nothing else need be larger.
        alone = {feed: [axis] for feed, axis in growing.items()}
        ways = [*itertools.product((self.open_axes, alone), (_MORE_ENTRIES, self.batch))]
        for axes, more in ways if growing else ():
            step = dataclasses.replace(self, axis_of_feed=growing, open_axes=axes)
            if (larger := step.larger(more)) is not None:
                yield step._open_as(larger), larger
        batches = {feed: [axis] for feed, axis in self.axis_of_feed.items()}
        step = self.with_open(without(self.open_axes, batches))
        larger = step.larger(0)
        if larger is not None and larger.sizes != self.sizes:
            yield step._open_as(larger), larger

    def _open_as(self, larger: "OpenStep") -> "OpenStep":
        """The step, of which that is open that has another size in the larger one."""
        sizes = self.open_sizes
        return self.with_open(by_key(at for at, size in sizes.items() if larger.sizes[at] != size))

    def far(self) -> "OpenStep | None":
        """The step with a much larger batch.

        What loops make there is found, too: what isn't known would count as no part of the batch.
        """
        for batch in (_FAR * self.batch + _FAR_REMAINDER, _FAR * self.batch):
            if (far := self.larger(batch - self.batch)) is not None:
                if not far.flat.unit_of_node:
                    return far
                with contextlib.suppress(ModelError):
                    properties = infer_known(far.flat, through_units=True)
                    return dataclasses.replace(far, properties=properties)
        return None

    def shapes_of_any_size(self) -> Mapping[str, Sequence[Shape]]:
        """{op: shapes of its outputs} as far as they are known whatever a run is fed, -1 beyond."""
        inferred = self.fed(dict.fromkeys(self.open_sizes, -1))
        return {} if inferred is None else inferred.properties.shape_of

    def following(self, larger: "OpenStep") -> dict[str, dict[int, int]]:
        """See Decisions: the batch's axes, and those that grew as it did where nothing else ran."""
        grown = {p: (n, larger.sizes[p]) for p, n in self.sizes.items() if n != larger.sizes[p]}
        places = [each for each in self.axis_of_feed.items() if each in grown]
        others = {place: both for place, both in grown.items() if place not in places}
        if places and any(after != _by_one(size) for size, after in others.values()):
            batch, after_batch = grown[places[0]]
            places += [
                p for p, (size, after) in others.items() if size * after_batch == after * batch
            ]
        found: dict[str, dict[int, int]] = {}
        for feed, axis in places:
            found.setdefault(feed, {})[axis] = self.sizes[feed, axis]
        return found

    def other_lengths(
        self, runs: Callable[["OpenStep"], bool] = lambda step: True
    ) -> list["OpenStep"]:
        """The step with as little as can be, and with very much, of what is open.

        A window of at most four steps is as long in one of six as in one of seven, and so is half
        of both. Each axis has a size of its own, if the step runs so: else it has that of those
        that were as long and without which it doesn't run.

        Args:
          runs: whether a step runs, as far as that is not seen in its shapes.

        Returns:
          The step, less and more, as far as it runs so.
        """
        found = []
        for sizes in (_fewer, _more):
            last = self
            for number, (place, size) in enumerate(self.open_sizes.items()):
                if last.sizes[place] != size:
                    continue
                alike = [p for p, own in self.open_sizes.items() if own == last.sizes[p] == size]
                alone = next(last._moved([place], sizes(size, number)), None)
                if alone is not None and runs(alone):
                    last = alone
                    continue
                joined = next(filter(runs, last._moved(alike, sizes(size, number))), None)
                for other in alike:
                    if joined is not None and other != place:
                        joined = next(filter(runs, joined._moved([other], [size])), joined)
                last = joined or alone or last
            found += [] if last is self else [last]
        return found

    def _moved(self, places: Sequence[Place], sizes: Sequence[int]) -> "Iterator[OpenStep]":
        """The step with each size for all of these axes, where its shapes don't contradict it.

        Sizes at which something is empty, as all pairs of one step are, come last: they show
        little.
        """
        empty = []
        for size in sizes:
            step = self.fed(dict.fromkeys(places, size))
            if step is not None and step._has_empty:
                empty.append(step)
            elif step is not None:
                yield step
        yield from empty

    @property
    def _has_empty(self) -> bool:
        """Whether a tensor of floats has no elements."""
        shape_of, dtype_of = self.properties.shape_of, self.properties.dtype_of
        return any(
            "float" in dtype and 0 in (shape or ())
            for op, shapes in shape_of.items()
            for dtype, shape in zip(dtype_of[op], shapes, strict=True)
        )


def without(
    open_axes: Mapping[str, Collection[int]], others: Mapping[str, Collection[int]]
) -> dict[str, list[int]]:
    """The axes of fed tensors that are not among others."""
    return {
        feed: [axis for axis in axes if axis not in others.get(feed, ())]
        for feed, axes in open_axes.items()
    }


def _by_one(size: int, batch: int = 0, more: int = 0) -> int:
    del batch, more
    return size + 1


def _by_one_less(size: int, batch: int, more: int) -> int:
    del batch, more
    return max(1, size - 1)


def _with_batch(size: int, batch: int, more: int) -> int:
    return size + more if size == batch else _by_one(size)


def _in_proportion(size: int, batch: int, more: int) -> int:
    times, rest = divmod(size * (batch + more), batch)
    return _by_one(size) if rest else times


def _fewer(size: int, number: int) -> list[int]:
    del number
    return [few for few in _FEW if few < size]


def _more(size: int, number: int) -> list[int]:
    return [many + 2 * number + 1 for many in _MANY if many > size] + [2 * size + number]

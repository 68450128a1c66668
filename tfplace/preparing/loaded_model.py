"""A model loaded, opened down to single ops, as arrays, with what is fed to a run."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from graphs.building.build import BuiltGraph, build_op_graph
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties, infer
from graphs.errors import FeedError, ShapesRefusedError
from graphs.flat_graph import FlatGraph
from graphs.loading.feed_shapes import sizes_guessed
from graphs.loading.feeds import feeds_of_opened, given_shapes, read_feeds
from graphs.loading.load import load
from graphs.loading.load_options import FIRST_GUESS, OTHER_GUESSES, GuessedSizes
from graphs.source_model import SourceModel, TensorSpec
from rewrite.memory.planned_model import cleared_model, planned_model
from rewrite.order.order_edges import without_order
from rewrite.split.split_model import (
    SplitModel,
    StepToSplit,
    names_of_run,
    takes_any_batch,
    told_batch_axes,
)
from rewrite.split.states import Place
from rewrite.written_signature import run_name
from tfplace.measurement.training_run import TrainingRun
from tfplace.preparing.options import ProblemOptions


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model and one run of it, whatever devices there may be.

    Attributes:
      source: the model as it came.
      flat: its run graph with function calls opened.
      properties: shapes and dtypes of the opened graph's tensors.
      built: the opened graph as arrays.
      feeds: {tensor: array} of one run; large ones are made when they are read.
      split: how the run was split along its batch; None where it is as it came.
      to_split: the model as it came, for other numbers of shards.
      reading_seconds: of this process, what reading it took without loading its file; of a
        prepared model, what pricing it took besides. Another number of shards takes about as much:
        that children start, and run ops, is not among it and need not be done again.
    """

    source: SourceModel
    flat: FlatGraph
    properties: TensorProperties
    built: BuiltGraph
    feeds: Mapping[str, np.ndarray]
    split: SplitModel | None
    to_split: StepToSplit
    reading_seconds: float

    @property
    def serves_any_batch(self) -> bool:
        """Whether it is run to answer requests of any size: what is split takes no small ones."""
        return self.source.mode == "inference" and takes_any_batch(self.source)

    def training_run(self) -> TrainingRun:
        """What one run of the model is, for the measuring process."""
        return TrainingRun(
            feeds=self.feeds, fetches=self.source.fetches, initialization=self.source.initialization
        )

    def opened_run(self) -> TrainingRun:
        """The same run with function calls opened, so that every op can have its own device."""
        return dataclasses.replace(
            self.training_run(), fetches=self.flat.fetches, source_graph=self.source.graph_def
        )


def load_model(
    options: ProblemOptions,
    place_of_shard: Sequence[Place] = (),
    on_split: Callable[[SourceModel], None] = lambda source: None,
    to_split: StepToSplit | None = None,
    unplanned: LoadedModel | None = None,
) -> LoadedModel:
    """Loads a model, opens it, and finds or makes what is fed.

    Args:
      options: which model, and into how many shards its step is split.
      place_of_shard: on which host and device each shard is likely to lie, if that is known.
      on_split: is given the model with the split step, as soon as there is one.
      to_split: of the same model, where that was read before.
      unplanned: the model, split as it should be, into which options.planned is to be written.

    Raises:
      ModelError, FeedError, UsageError: bad input.
    """
    if unplanned is not None and options.planned is not None:
        began = time.process_time()
        source = planned_model(unplanned.source, options.planned)
        flat, properties, built = _opened(source)
        return LoadedModel(
            source,
            flat,
            properties,
            built,
            feeds=unplanned.feeds,
            split=unplanned.split,
            to_split=unplanned.to_split,
            reading_seconds=time.process_time() - began,
        )
    if to_split is not None:
        return _loaded(options, place_of_shard, on_split, to_split)
    refusal, guesses = "", [FIRST_GUESS]
    for guess in guesses:
        source = _source(options, guess, refusal)
        try:
            return _loaded(options, place_of_shard, on_split, StepToSplit(source))
        except ShapesRefusedError as error:
            taken = "; ".join(sizes_guessed(source.guessed))
            if not taken:
                raise
            if not refusal:
                guesses += OTHER_GUESSES  # and what is said of the refusal may name the size
                guesses += [GuessedSizes(batch=size) for size in error.sizes]
                guesses += [GuessedSizes(other=size) for size in error.sizes]
                refusal = f"no size is given ({taken}), which {error.refusal}"
    raise FeedError(
        f"sizing the inputs of {options.model!r}: {refusal}; {len(guesses) - 1} others fit as "
        "little; say --batch_size=... or --input_shape NAME=..."
    )


def _loaded(
    options: ProblemOptions,
    place_of_shard: Sequence[Place],
    on_split: Callable[[SourceModel], None],
    to_split: StepToSplit,
) -> LoadedModel:
    """Does what `load_model` does, of the sizes that the model was read with."""
    began = time.process_time()
    source, split = to_split.source, None
    told_batch_axes(source, source.feeds, options.batch_axes)  # also where nothing is split yet
    feeds: Mapping[str, np.ndarray] | None = None
    if options.fed is not None:  # what doesn't fit is told before shapes are inferred
        own = source.signatures.get(run_name(source))
        names = names_of_run(source, source.feeds)
        feeds = read_feeds(options.fed, source.feeds, names, {} if own is None else own.inputs)
    if options.num_shards > 1:
        in_turn = options.sums_in_turn
        if in_turn is None:
            in_turn = options.order != "none"
        split = to_split.split(
            options.num_shards,
            options.batch_axes,
            in_turn,
            place_of_shard,
            options.left_whole,
            options.cuts_weights,
        )
        source = split.source
        on_split(source)
    flat, properties, built = _opened(source)
    if feeds is None:
        # The unsplit step says as much of its inputs, in far fewer ops.
        opened = (flat, properties) if split is None else (split.flat, split.properties)
        make = functools.partial(feeds_of_opened, *opened, source.feeds, options.seed)
        feeds = made_when_read(source.feeds, make)
    seconds = time.process_time() - began
    return LoadedModel(source, flat, properties, built, feeds, split, to_split, seconds)


def _opened(source: SourceModel) -> tuple[FlatGraph, TensorProperties, BuiltGraph]:
    """The run with its calls opened, the shapes in it, and both as arrays."""
    # A made training step has rewritten the model's conditionals: their ops are not the model's.
    is_own = source.origins is None
    flat = flatten(source.graph_def, source.feeds, source.fetches, open_conditionals=is_own)
    properties = infer(flat)
    return flat, properties, build_op_graph(flat, properties)


def _source(
    options: ProblemOptions, guess: GuessedSizes = FIRST_GUESS, refusal: str = ""
) -> SourceModel:
    """The model, without what an earlier placement has written: its order goes with its devices."""
    load_options = dataclasses.replace(options.load, guess=guess)
    if options.fed is not None:  # the arrays to feed decide unknown dimensions
        load_options = dataclasses.replace(load_options, fed_shape=given_shapes(options.fed))
    source = load(options.model, load_options)
    guessed = (*source.guessed, *([f"other sizes first: {refusal}"] if refusal else []))
    if not options.as_written:
        return dataclasses.replace(cleared_model(source), guessed=guessed)
    kept = without_order(source.graph_def, keeps_edges=True)
    return dataclasses.replace(source, graph_def=kept, guessed=guessed)


# Inputs that are made up only when somebody reads one: a batch for 64 GPUs fits no single machine.
#
# Where nothing is run, as with a cluster that is only described, nobody does.
MAX_ELEMENTS_AT_ONCE = 2**24
"""Of all inputs: fewer are made at once, so that what is wrong is known before a search."""


class FeedsWhenRead(Mapping[str, np.ndarray]):
    """{tensor: array} of one run, made when the first array is read."""

    def __init__(self, feeds: Sequence[TensorSpec], make: Callable[[], Mapping[str, np.ndarray]]):
        self._tensors = [spec.tensor for spec in feeds]
        self._make = make

    @functools.cached_property
    def _made(self) -> Mapping[str, np.ndarray]:
        return self._make()

    def __getitem__(self, tensor: str) -> np.ndarray:
        if tensor not in self._tensors:
            raise KeyError(tensor)
        return self._made[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __reduce__(self) -> tuple[type, tuple[dict[str, np.ndarray]]]:
        return dict, (dict(self),)


def made_when_read(
    feeds: Sequence[TensorSpec], make: Callable[[], Mapping[str, np.ndarray]]
) -> Mapping[str, np.ndarray]:
    """What `make` makes: now, or where that is large when an array is read."""
    shapes = [spec.shape for spec in feeds if spec.shape is not None]
    is_small = sum(math.prod(shape) for shape in shapes) <= MAX_ELEMENTS_AT_ONCE
    is_complete = len(shapes) == len(feeds) and all(min(s, default=0) >= 0 for s in shapes)
    return make() if is_small or not is_complete else FeedsWhenRead(feeds, make)

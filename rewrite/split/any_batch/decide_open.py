"""Decides for a step that takes any batch size: what holds for one size has to hold for others."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import op_of
from graphs.source_model import TensorSpec
from rewrite.split.any_batch import agreement
from rewrite.split.any_batch.bounded_sizes import of_bounded_sizes
from rewrite.split.any_batch.data_dependent_ranks import (
    UNSURE_RANK,
    forgetting_ranks,
    ops_of_unsure_rank,
)
from rewrite.split.any_batch.open_step import LEAST_BATCH, OpenStep, without
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.functions import Bodies


def decide_open(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    kept_whole: Mapping[str, str] | None = None,
    left_whole: Collection[str] = (),
    bodies: Bodies | None = None,
) -> Decisions | None:
    """Decides twice, at two sizes of everything that is open, and keeps what agrees.

    A number in the graph that only happens to be the batch's size is told apart by this, and so
    is a shape that happens to look like another one. What was found is held against the shapes at
    a much larger size, where a number that is bounded (the first hundred rows) or a remainder is
    no longer the batch's, and at few and many of what else is open: of a window of six steps or
    seven, the first four are as many.

    Args:
      flat, properties, batch, axis_of_feed, kept_whole, left_whole, bodies: as for `decide`, at
        one batch size.
      open_axes: {fed tensor: its axes of any size}.

    Returns:
      The decisions; of any batch size where the step runs with another one, else of this one, and
      of any size of what else is open. None where nothing that is open can have another size.
    """
    for step, larger in OpenStep(flat, properties, batch, axis_of_feed, open_axes).grown():
        unsure = ops_of_unsure_rank(flat, functools.partial(_looked_at, step, larger))
        if unsure:
            step = step.of_graph(forgetting_ranks(flat, unsure))
            again = step.larger(larger.batch - batch)
            assert again is not None  # it ran when more was known
            larger = again
        whole = {**(kept_whole or {}), **dict.fromkeys(unsure, UNSURE_RANK)}
        deciding = _Deciding(step, larger, whole, left_whole, bodies or Bodies(flat.graph_def))
        if (decisions := deciding.decisions()) is not None:
            any_shapes = step.shapes_of_any_size()
            return dataclasses.replace(decisions, unsure_ranks=unsure, any_shapes=any_shapes)
    return None


def _looked_at(step: OpenStep, larger: OpenStep) -> list[OpenStep]:
    """The step at few and many of all that is open."""
    along = step.following(larger)
    ends = [step.far(), step.larger(LEAST_BATCH - step.batch)] if along else []
    lengths = step.with_open(without(step.open_axes, along)).other_lengths()
    return [step, larger, *filter(None, ends), *lengths]


class _Deciding:
    """Decides for a step at several sizes, again and again until they agree."""

    def __init__(
        self,
        step: OpenStep,
        larger: OpenStep,
        kept_whole: dict[str, str],
        left_whole: Collection[str],
        bodies: Bodies,
    ):
        self._step, self._larger, self._along = step, larger, step.following(larger)
        self._kept_whole, self._left_whole, self._bodies = kept_whole, left_whole, bodies
        self._not_cut = set[str]()
        self._more = larger.batch - step.batch
        self._far = step.far() if self._more else None
        self._beside = step.with_open(without(step.open_axes, self._along))
        self._grown = self._with_more(step) if self._beside.open_sizes else None
        self._lengths, self._are_held = self._beside.other_lengths(), False

    def decisions(self) -> Decisions | None:
        """What agrees; None where the step turns out not to run at the other size."""
        while True:
            first, second = self._decided(self._step), self._decided(self._larger)
            if not second.refused <= first.refused:
                return None
            first = agreement.decisions_seen_twice(first, second)
            not_cut, whole = self._of_two_batches(first, second), dict[str, str]()
            if not not_cut:
                whole = agreement.differences(first, second, self._kept_whole)
            if not not_cut and not whole:
                lengths = [self._decided(each) for each in self._lengths]
                if not self._are_held and not all(at.refused <= first.refused for at in lengths):
                    self._hold_lengths(first)
                    continue
                first = functools.reduce(agreement.decisions_seen_twice, lengths, first)
                not_cut, whole = self._of_lengths(first, lengths)
            if not not_cut and not whole:
                axes = {feed: [*each] for feed, each in self._step.open_axes.items()}
                return dataclasses.replace(
                    first, is_open=True, open_axes=axes, following=self._along
                )
            self._not_cut |= not_cut
            self._kept_whole.update({**whole, **agreement.split_among(not_cut, first)})

    def _decided(self, step: OpenStep) -> Decisions:
        return decide(
            step.flat,
            step.properties,
            step.batch,
            step.axis_of_feed,
            self._kept_whole,
            not_cut=self._not_cut,
            left_whole=self._left_whole,
            bodies=self._bodies,
            values=step.values,
        )

    def _with_more(self, step: OpenStep) -> OpenStep | None:
        """At more entries of the batch, and of nothing else."""
        return step.with_open(self._along).larger(self._more) if self._more else None

    def _of_two_batches(self, first: Decisions, second: Decisions) -> set[str]:
        """Ops that are not of the batch's size at all sizes: the first of them that are found."""
        grown = second if self._grown is None else self._decided(self._grown)
        return (
            agreement.cut_at_one_size(first, second)
            or (set() if self._far is None else agreement.of_another_size(first, self._far))
            or of_bounded_sizes(first, grown)
            or agreement.cut_though_open_elsewhere(first, second)
        )

    def _of_lengths(
        self, first: Decisions, lengths: Sequence[Decisions]
    ) -> tuple[set[str], dict[str, str]]:
        """The same, with as much else as was tried; and {split op: why it can't be}."""
        not_cut, whole = set[str](), dict[str, str]()
        for step, at in zip(self._lengths, lengths, strict=True):
            if (longer := self._with_more(step)) is not None:
                bounded = of_bounded_sizes(at, self._decided(longer))
                not_cut |= bounded
                # It may be whole at the first length.
                whole.update(agreement.split_among(bounded, at))
            not_cut |= agreement.of_another_size(first, at)
            not_cut |= agreement.cut_though_open_elsewhere(first, at)
            whole.update(agreement.differences_at_length(first, at))
        return not_cut, whole

    def _hold_lengths(self, first: Decisions) -> None:
        """Behind loops only what becomes of the ops there shows which lengths run."""
        self._lengths = self._beside.other_lengths(
            lambda step: self._decided(step).refused <= first.refused
        )
        self._are_held = True


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

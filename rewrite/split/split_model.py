"""Splits a model's step along its batch: from a model to a model that holds both steps."""

import dataclasses
import hashlib
import os
from collections.abc import Collection, Mapping, Sequence

from graphs import op_types
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import NothingToSplitError, UsageError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.loading.feed_shapes import names_of_inputs
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import GraphDef, shape_of
from graphs.source_model import SourceModel, TensorSpec
from rewrite.model_builder import own_graph
from rewrite.split.any_batch.decide_open import decide_open, open_axes_of
from rewrite.split.any_batch.input_assertions import asked_of_feeds
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.building.build_step import build_step
from rewrite.split.building.collectives import ring_of
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.decision import Answer, Split
from rewrite.split.functions import Bodies
from rewrite.split.node_writer import TakenNames
from rewrite.split.pieces.choose import PiecesChooser
from rewrite.split.pieces.open_sizes import with_open_sizes
from rewrite.split.prove.ops.op_case import operations_of
from rewrite.split.reading.batch_axes import apart, candidates, small_batches, told_axes
from rewrite.split.reading.merge_reads import gathers_of_reads, merge_reads
from rewrite.split.reading.state_order import with_state_order
from rewrite.split.split_step import SplitStep
from rewrite.split.states import Place
from rewrite.split.summary import AN_OUTPUT
from rewrite.split.write.split_graph import with_outputs
from rewrite.split.write.write_model import written
from rewrite.written_signature import run_name, whole_name

_Decided = tuple[FlatGraph, Decisions]


@dataclasses.dataclass(frozen=True)
class SplitModel:
    """A model whose step is split, and how.

    Attributes:
      given: the model as it came.
      source: the model with the split step as its run; the unsplit one stays beside it.
      fused: the unsplit step.
      flat: the same, batch normalisations taken apart.
      properties: of its tensors, with what was found of loops and lists.
      decisions: what became of each of its ops.
      step: the split step.
      num_shards: M.
      outputs: {Identity op of the step: the fetched tensor that it stands for}.
    """

    given: SourceModel
    source: SourceModel
    fused: FlatGraph
    flat: FlatGraph
    properties: TensorProperties
    decisions: Decisions
    step: SplitStep
    num_shards: int
    outputs: Mapping[str, str]


class StepToSplit:
    """A model's step before it is split: what hangs on no number of shards is found once.

    Attributes:
      source: the model as it came.
    """

    def __init__(self, source: SourceModel) -> None:
        """Reads nothing yet."""
        self.source = source
        self._opened: tuple[Mapping[str, str], FlatGraph] | None = None
        self._readings: dict[tuple[object, ...], _Readings] = {}

    def split(
        self,
        num_shards: int,
        batch_axes: Mapping[str, int] | None = None,
        sums_in_turn: bool = False,
        place_of_shard: Sequence[Place] = (),
        left_whole: Collection[str] = (),
        cuts_weights: bool = False,
    ) -> SplitModel:
        """Splits it.

        Args:
          num_shards: M, at least 2.
          batch_axes: {input: which axis is its batch}, as far as the user named them.
          sums_in_turn, place_of_shard: see Decisions.
          left_whole: see decide.
          cuts_weights: whether weights are cut into M pieces, instead of the batch into M parts.

        Raises:
          UsageError: the step can't be split into so many parts, or is not in the model.
        """
        source, own = self.source, own_graph(self.source)
        readings = self._read(own, batch_axes, place_of_shard)
        if cuts_weights:
            flat, decisions = readings.in_pieces(num_shards)
        else:
            flat, decisions = readings.best(num_shards, frozenset(left_whole))
        decisions = dataclasses.replace(
            decisions, sums_in_turn=sums_in_turn, place_of_shard=place_of_shard
        )
        name = whole_name(source)
        advice = f"run the unsplit step{name and f', signature {name}'}"
        taken = TakenNames({node.name for node in own.node}, {*library_of(own)})
        key = "tfplace/" + hashlib.sha256(os.path.abspath(source.path).encode()).hexdigest()[:16]
        step = build_step(flat, decisions, num_shards, advice, taken, key)
        return SplitModel(
            given=source,
            source=written(source, own, flat, step, readings.outputs),
            fused=readings.fused,
            flat=flat,
            properties=decisions.properties,
            decisions=decisions,
            step=step,
            num_shards=num_shards,
            outputs=readings.outputs,
        )

    def decisions(
        self,
        batch_axes: Mapping[str, int] | None = None,
        place_of_shard: Sequence[Place] = (),
        left_whole: Collection[str] = (),
        num_pieces: int = 0,
    ) -> Decisions:
        """What would become of each op, into however many shards it were split.

        With `num_pieces` it is the weights that are cut, into so many.

        Raises:
          UsageError: the step can't be split, or is not in the model.
        """
        readings = self._read(own_graph(self.source), batch_axes, place_of_shard)
        if num_pieces:
            return readings.in_pieces(num_pieces)[1]
        return readings.best(2, frozenset(left_whole))[1]

    def _read(
        self, own: GraphDef, batch_axes: Mapping[str, int] | None, place_of_shard: Sequence[Place]
    ) -> "_Readings":
        source = self.source
        if self._opened is None:
            _require_own_step(source)
            self._opened = _opened(source)
        outputs, flat = self._opened
        step = gathers_of_reads(flat) if ring_of(place_of_shard) else flat
        told = told_batch_axes(source, flat.feeds, batch_axes or {})
        key = step is flat, *sorted(told.items())
        if key not in self._readings:
            self._readings[key] = _Readings(step, outputs, _declared(own), told)
        return self._readings[key]


def told_batch_axes(
    source: SourceModel, feeds: Sequence[TensorSpec], batch_axes: Mapping[str, int]
) -> dict[str, int]:
    """{fed tensor: axis} of what the user named; UsageError: there is no such input, or axis."""
    return told_axes(feeds, batch_axes, names_of_run(source, feeds))


def names_of_run(source: SourceModel, feeds: Sequence[TensorSpec]) -> dict[str, str]:
    """{name: fed tensor} of what a user may call the run's inputs."""
    return names_of_inputs(feeds, source.signatures.get(run_name(source)), source.signatures)


def _require_own_step(source: SourceModel) -> None:
    if source.origins is not None:
        raise UsageError(
            f"splitting the step of {source.path!r}: the model has no training step; the one that "
            "tfplace made up says what training costs, but trains nothing that anybody wants, so "
            "that its parts are not written either; wanted a model with a step of its own (a "
            "signature train_step, or a .keras file that was saved after compile()), or "
            "--mode=inference"
        )


def takes_any_batch(source: SourceModel) -> bool:
    """Whether the first axis of an input may have any size."""
    open_axes = open_axes_of(_declared(own_graph(source)), source.feeds)
    return any(0 in axes for axes in open_axes.values())


def _declared(own: GraphDef) -> dict[str, Sequence[int] | None]:
    """{placeholder: its shape, -1 for any size; None for any rank}, as the main graph has it."""
    return {
        node.name: shape_of(node.attr["shape"].shape) if "shape" in node.attr else None
        for node in own.node
        if node.op in op_types.PLACEHOLDERS
    }


def _opened(source: SourceModel) -> tuple[Mapping[str, str], FlatGraph]:
    """{Identity op of the step: the fetched tensor that it stands for}, and the opened step."""
    outputs, made = with_outputs(source)
    flat = flatten(made.graph_def, source.feeds, made.fetches, open_conditionals=False)
    fed = {op_of(spec.tensor) for spec in flat.feeds}
    for name in (name for node in flat.graph_def.node for name in data_inputs(node)):
        tensor = parse_input(name)
        # The op's copies would make all of its outputs, and nobody would read what is fed.
        if tensor.op in fed and tensor.output:
            raise UsageError(
                f"splitting the step: it reads {tensor.tensor!r} of an op that makes several "
                "outputs, of which one is fed; wanted inputs that are placeholders, or --shards=1"
            )
    return outputs, flat


class _Readings:
    """A step, with its decisions for each axis that may be the batch's.

    Attributes:
      fused: the step.
      outputs: {Identity op of the step: the fetched tensor that it stands for}.
    """

    def __init__(
        self,
        flat: FlatGraph,
        outputs: Mapping[str, str],
        declared: Mapping[str, Sequence[int] | None],
        told: Mapping[str, int],
    ) -> None:
        """Decides nothing yet; `told` is {fed tensor: axis} as the user said."""
        self._declared, open_axes = declared, open_axes_of(declared, flat.feeds)
        self.fused, self.outputs = merge_reads(with_state_order(flat)), outputs
        self._properties = infer_known(self.fused)
        if open_axes and flat.unit_of_node:  # sizes that were guessed may contradict behind a loop
            infer_known(self.fused, through_units=True)
        self._bodies = Bodies(self.fused.graph_def)
        self._open_axes = open_axes
        self._axes, self._tied = list[tuple[int, dict[str, int]]](), set[int]()
        for each in candidates(flat.feeds, open_axes, told):
            readings = apart(self.fused, each, open_axes, told)
            self._axes += readings
            if len(readings) > 1:  # where shapes aren't known, an op may need them alike after all
                self._tied.add(len(self._axes))
                self._axes.append(each)
        if self._axes and not open_axes:
            batch, axes = self._axes[0]
            small = small_batches(self.fused, self._properties, batch, axes)
            self._axes += [(size, axes) for size in small]
        self._decided: dict[tuple[int, frozenset[str]], _Decided] = {}
        self._in_pieces: dict[int, _Decided] = {}

    def best(self, num_shards: int, left_whole: frozenset[str]) -> _Decided:
        """The reading that splits most, with so large a batch; UsageError: there is none."""
        possible = [i for i, (batch, _) in enumerate(self._axes) if batch >= num_shards]
        if 0 not in possible:  # more entries than the batch has lie along another batch, or nowhere
            possible = [i for i in possible if 0 in self._axes[i][1].values()]
        if not possible:
            raise self._too_small(num_shards)
        best = possible[0]
        if len(possible) > 1:  # whatever is left whole: the axis is the step's
            best = max(possible, key=self._worth)
        flat, decisions = self._at(best, left_whole)
        answers = decisions.answer_of_op.values()
        if not decisions.num_left_whole and not any(_has_copies(answer) for answer in answers):
            raise self._nothing(num_shards, decisions)
        return flat, decisions

    def in_pieces(self, num_pieces: int) -> _Decided:
        """The step with its weights in so many pieces.

        Raises:
          UsageError: no weight can be cut so.
        """
        if num_pieces in self._in_pieces:
            return self._in_pieces[num_pieces]
        flat, whole = self.fused, dict.fromkeys(self.outputs, AN_OUTPUT)
        chooser = PiecesChooser(flat, self._properties, num_pieces, whole, self._bodies)
        decisions = chooser.found()
        if decisions is None:
            found = "none of which a piece saves more than it has others send"
            if not chooser.is_any_free:
                found = "none that is read and updated outside of conditionals and loops"
            raise NothingToSplitError(
                f"cutting the step's weights into {num_pieces} pieces: found {found}; wanted "
                "--cut=batch, or --shards=1"
            )
        if self._open_axes:
            decisions = with_open_sizes(flat, decisions, self._open_axes, whole, self._bodies)
        asked = asked_of_feeds(flat.feeds, self._declared, self._open_axes, decisions.open_axes)
        self._in_pieces[num_pieces] = flat, dataclasses.replace(decisions, asked_of_feed=asked)
        return self._in_pieces[num_pieces]

    def _worth(self, number: int) -> tuple[int, bool, float]:
        """The more is taken of what the model takes, and the more work is split, the better."""
        flat, decisions = self._at(number, frozenset())
        asked = sum(len(each.axes) + each.any_rank for each in decisions.asked_of_feed.values())
        return -asked, number not in self._tied, _work_split(flat, decisions)

    def _at(self, number: int, left_whole: frozenset[str]) -> _Decided:
        if (number, left_whole) not in self._decided:
            batch, axes = self._axes[number]
            step, tensors = decompose_norms(self.fused, self._properties, batch, axes)
            kept_whole, decisions = dict.fromkeys(self.outputs, AN_OUTPUT), None
            bodies = self._bodies
            if self._open_axes:
                decisions = decide_open(
                    step, tensors, batch, axes, self._open_axes, kept_whole, left_whole, bodies
                )
            if decisions is None:
                decisions = decide(
                    step, tensors, batch, axes, kept_whole, left_whole=left_whole, bodies=bodies
                )
            asked = asked_of_feeds(step.feeds, self._declared, self._open_axes, decisions.open_axes)
            decisions = dataclasses.replace(decisions, asked_of_feed=asked)
            self._decided[number, left_whole] = step, decisions
        return self._decided[number, left_whole]

    def _too_small(self, num_shards: int) -> UsageError:
        feeds, axes = self.fused.feeds, self._axes
        entries = f"a batch of {axes[0][0]} entries" if axes else "no batch of so many entries"
        sizes = ", ".join(f"{op_of(s.tensor)} {list(s.shape or ())}" for s in feeds)
        larger = "a larger --batch_size, " if self._open_axes else ""
        return (UsageError if axes else NothingToSplitError)(
            f"splitting the step into {num_shards} parts: found {entries}; the inputs are "
            f"{sizes or 'none'}; wanted --shards of at most the batch, {larger}or --batch_axis "
            "NAME=AXIS"
        )

    def _nothing(self, num_shards: int, decisions: Decisions) -> UsageError:
        axes = decisions.axis_of_feed.items()
        batch = ", ".join(f"axis {axis} of {op_of(feed)}" for feed, axis in axes)
        return NothingToSplitError(
            f"splitting the step into {num_shards} parts along {batch}: found no op that can work "
            "on parts of it; wanted --shards=1, or --batch_axis NAME=AXIS"
        )


def _has_copies(answer: Answer) -> bool:
    return isinstance(answer, Split) and not answer.is_repeated


def _work_split(flat: FlatGraph, decisions: Decisions) -> float:
    """About how many operations the ops take that are split.

    Many small ops of a layer that works along an axis are less than the few large ones of all.
    """
    properties, work = decisions.properties, 0.0
    for node in flat.graph_def.node:
        if _has_copies(decisions.answer_of_op[node.name]):
            read = [properties.shape(name) for name in data_inputs(node)]
            work += operations_of(node.op, read, properties.shape_of[node.name])
    return work

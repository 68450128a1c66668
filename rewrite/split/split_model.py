"""Splits a model's step along its batch: from a model to a model that holds both steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import UsageError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.loading.feed_shapes import names_of_inputs
from graphs.names import op_of
from graphs.source_model import SourceModel, TensorSpec
from graphs.tensor_protos import shape_of
from rewrite.model_builder import given_graph
from rewrite.split.across_shards import ring_of
from rewrite.split.batch_axes import candidates, told_axes
from rewrite.split.build_step import SplitStep, build_step
from rewrite.split.decide import Decisions, decide
from rewrite.split.decide_open import decide_open, open_axes_of
from rewrite.split.decompose_norms import decompose_norms
from rewrite.split.gathers_of_reads import gathers_of_reads
from rewrite.split.merge_reads import merge_reads
from rewrite.split.node_writer import TakenNames
from rewrite.split.op_view import Split
from rewrite.split.states import Place
from rewrite.split.step_outputs import with_outputs
from rewrite.split.write_model import run_name, whole_name, written

AN_OUTPUT = "it is an output of the step"
"""Why an op stays whole that stands for what a run fetches."""


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


def split_model(
    source: SourceModel,
    num_shards: int,
    batch_axes: Mapping[str, int] | None = None,
    sums_in_turn: bool = False,
    place_of_shard: Sequence[Place] = (),
) -> SplitModel:
    """Splits the run of a model.

    Args:
      source: the model as it came.
      num_shards: M, at least 2.
      batch_axes: {input: which axis is its batch}, as far as the user named them.
      sums_in_turn, place_of_shard: see Decisions.

    Raises:
      UsageError: the step can't be split into so many parts, or is not in the model.
    """
    _require_own_step(source)
    own = _own_graph(source)
    outputs, step_source = with_outputs(source)
    flat = flatten(
        step_source.graph_def, source.feeds, step_source.fetches, open_conditionals=False
    )
    if ring_of(place_of_shard):
        flat = gathers_of_reads(flat)
    flat = merge_reads(flat)
    properties = infer_known(flat)
    kept_whole = dict.fromkeys(outputs, AN_OUTPUT)
    told = told_batch_axes(source, flat.feeds, batch_axes or {})
    fused = flat
    flat, properties, decisions = _decided(flat, properties, own, told, num_shards, kept_whole)
    decisions = dataclasses.replace(
        decisions, sums_in_turn=sums_in_turn, place_of_shard=place_of_shard
    )
    advice = (
        f"a batch of fewer than {num_shards} entries can't be split into {num_shards} parts: give "
        f"more, or run the unsplit step, signature {whole_name(source)}; entries:"
    )
    taken = TakenNames({node.name for node in own.node}, {*library_of(own)})
    step = build_step(flat, properties, decisions, num_shards, advice, taken)
    split = written(source, own, flat, step, outputs)
    properties = decisions.properties
    return SplitModel(source, split, fused, flat, properties, decisions, step, num_shards, outputs)


def decided_unsplit(
    source: SourceModel,
    flat: FlatGraph,
    properties: TensorProperties,
    batch_axes: Mapping[str, int] | None = None,
) -> Decisions:
    """What would become of each op of a step, into however many shards it were split.

    Args:
      source: the model as it came.
      flat: its step, opened as it is placed unsplit.
      properties: of its tensors.
      batch_axes: see split_model.

    Raises:
      UsageError: the step can't be split, or is not in the model.
    """
    _require_own_step(source)
    told = told_batch_axes(source, flat.feeds, batch_axes or {})
    return _decided(flat, properties, _own_graph(source), told, 2, {})[2]


def told_batch_axes(
    source: SourceModel, feeds: Sequence[TensorSpec], batch_axes: Mapping[str, int]
) -> dict[str, int]:
    """{fed tensor: axis} of what the user named.

    Raises:
      UsageError: a name is no input's, or an axis is none of its axes.
    """
    names = names_of_inputs(feeds, source.signatures.get(run_name(source)), source.signatures)
    return told_axes(feeds, batch_axes, names)


def _require_own_step(source: SourceModel) -> None:
    if source.origins is not None:
        raise UsageError(
            f"splitting the step of {source.path!r}: the model has no training step; the one that "
            "tfplace made up says what training costs, but trains nothing that anybody wants, so "
            "that its parts are not written either; wanted a model with a step of its own (a "
            "signature train_step, or a .keras file that was saved after compile()), or "
            "--mode=inference"
        )


def _own_graph(source: SourceModel) -> Any:
    """The model's main graph as it came, without shapes that were filled in."""
    if source.saved_model_dir:
        return source.meta_graph_def.graph_def
    return given_graph(source)


def takes_any_batch(source: SourceModel) -> bool:
    """Whether the first axis of an input may have any size."""
    return any(0 in axes for axes in _open_axes(_own_graph(source), source.feeds).values())


def _open_axes(own: Any, feeds: Sequence[TensorSpec]) -> dict[str, list[int]]:
    """{fed tensor: axes of any size}, as the model's main graph declares them."""
    declared = {
        node.name: shape_of(node.attr["shape"].shape)
        for node in own.node
        if node.op in op_types.PLACEHOLDERS and "shape" in node.attr
    }
    return open_axes_of(declared, feeds)


def _decided(
    flat: FlatGraph,
    properties: TensorProperties,
    own: Any,
    told: Mapping[str, int],
    num_shards: int,
    kept_whole: Mapping[str, str],
) -> tuple[FlatGraph, TensorProperties, Decisions]:
    """The step, prepared, and the decisions for the reading of the inputs that splits most."""
    open_axes = _open_axes(own, flat.feeds)
    readings = candidates(flat.feeds, open_axes, told)
    entries = f"a batch of {readings[0][0]} entries" if readings else "no batch of so many entries"
    if readings and readings[0][0] < num_shards:
        readings = []
    best: tuple[FlatGraph, TensorProperties, Decisions] | None = None
    for batch, axes in readings:
        if batch < num_shards:
            continue
        step, tensors = decompose_norms(flat, properties, batch, axes)
        decisions = None
        if open_axes:
            decisions = decide_open(step, tensors, batch, axes, open_axes, kept_whole)
        if decisions is None:
            decisions = decide(step, tensors, batch, axes, kept_whole)
        if best is None or _num_split(decisions) > _num_split(best[2]):
            best = step, tensors, decisions
    if best is None:
        sizes = ", ".join(f"{op_of(s.tensor)} {list(s.shape or ())}" for s in flat.feeds)
        larger = "a larger --batch_size, " if open_axes else ""
        raise UsageError(
            f"splitting the step into {num_shards} parts: found {entries}; the inputs are "
            f"{sizes or 'none'}; wanted --shards of at most the batch, {larger}or --batch_axis "
            "NAME=AXIS"
        )
    return best


def _num_split(decisions: Decisions) -> int:
    return sum(isinstance(answer, Split) for answer in decisions.answer_of_op.values())

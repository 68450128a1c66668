"""What becomes of every op of a step, and in which state every tensor is."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence, Set

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import with_index
from graphs.protos import Shape
from rewrite.split.constant_folding import KnownValues
from rewrite.split.decide.analysis import Analysis, view_of
from rewrite.split.decide.loops import function_answer
from rewrite.split.decide.replicate_small import repeated_ops
from rewrite.split.decide.sliced_reads import parts_on_demand
from rewrite.split.decision import AskedShape, DecidedGraph, StayWhole
from rewrite.split.functions import Bodies
from rewrite.split.rules.table import RULES, Rule
from rewrite.split.shape_facts import Facts
from rewrite.split.states import Place, Sharded, State


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions(DecidedGraph):
    """How a step is split.

    Attributes:
      batch: how many entries the batch has; of a step that takes its inputs apart into several
        batches, one of these.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}; feeds that stay whole are left
        out.
      is_open: whether the step takes inputs of several sizes, so that all sizes are computed in
        each run.
      open_axes: {fed tensor: its axes of any size} of such a step.
      asked_of_feed: {fed tensor: what a run has to feed for it, though the model says less}.
      following: {fed tensor: {axis: its size for `batch` entries}} of what has to grow along with
        the batch of the first input, other inputs' batches among them.
      unsure_ranks: ops of such a step whose results may have fewer dimensions in another run.
      sums_in_turn: whether the terms of large sums are added one after another, each freed as soon
        as it is added, instead of all at once.
      place_of_shard: [M] on which host and device each shard is likely to lie: large sums and large
        whole tensors go from one to the next; empty where that is not known.
      not_cut: see decide.
      any_shapes: {op: shapes of its outputs, -1 for a size that may be another one in each run} of
        a step that takes inputs of several sizes.
      refused: ops that always run, and don't take what they are given at these sizes.
    """

    batch: int
    axis_of_feed: Mapping[str, int]
    is_open: bool = False
    open_axes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    asked_of_feed: Mapping[str, AskedShape] = dataclasses.field(default_factory=dict)
    following: Mapping[str, Mapping[int, int]] = dataclasses.field(default_factory=dict)
    unsure_ranks: Collection[str] = ()
    sums_in_turn: bool = False
    place_of_shard: Sequence[Place] = ()
    not_cut: Collection[str] = ()
    any_shapes: Mapping[str, Sequence[Shape]] = dataclasses.field(default_factory=dict)
    refused: Set[str] = frozenset()

    @property
    def values(self) -> KnownValues:
        """Of tensors that no run can change, for this batch size."""
        return self.facts.values

    @functools.cached_property
    def properties(self) -> TensorProperties:
        """Of the step's tensors, with what was found of loops and lists."""
        return self.facts.properties

    @property
    def num_left_whole(self) -> int:
        """How many ops are whole that could be split."""
        return sum(isinstance(a, StayWhole) and a.outputs != () for a in self.answer_of_op.values())

    def shape_of_any(self, tensor: str) -> Shape:
        """Of a tensor "op:i" in every run, as far as that is known; see `any_shapes`."""
        op, _, index = tensor.partition(":")
        return self.any_shapes[op][int(index)] if op in self.any_shapes else None

    @property
    def takes_any_batch(self) -> bool:
        """Whether the batch itself may have any size."""
        return any(a in self.open_axes.get(feed, ()) for feed, a in self.axis_of_feed.items())


def decide(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    axis_of_feed: Mapping[str, int],
    kept_whole: Mapping[str, str] | None = None,
    rules: Mapping[str, Rule] = RULES,
    not_cut: Collection[str] = (),
    left_whole: Collection[str] = (),
    bodies: Bodies | None = None,
    values: KnownValues | None = None,
) -> Decisions:
    """Asks the rules for every op, in the order of the graph.

    Args:
      flat: the step with its calls opened.
      properties: of its tensors, at this batch size.
      batch: how many entries the batch has.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}.
      kept_whole: {op that must not be split: why}.
      rules: {op type: its rule}.
      not_cut: whole ops whose outputs have no parts, though they look as if they had the batch.
      left_whole: ops that are not split, though they may be: what they make is cut again.
      bodies: the functions of the step, by the same rules, as they were opened and decided before.
      values: of the step's tensors, as far as no run can change them; found where not given.
    """
    bodies = bodies or Bodies(flat.graph_def)
    analysis = Analysis(
        batch, flat, kept_whole or {}, rules, function_answer, not_cut, left_whole, bodies
    )
    values = values or KnownValues(flat, properties)
    fed = _fed_states(flat, batch, axis_of_feed)
    while True:  # ends: what is known of a list only grows
        facts = Facts(flat, properties, values)
        answers, states = analysis.ops(facts, fed, "")
        tensors = [states[with_index(fetch)] for fetch in flat.fetches if ":" in fetch]
        analysis.elements.fail_all(tensors)
        if not analysis.elements.learn():
            break
    properties = facts.properties
    asked = parts_on_demand(
        flat, properties, answers, lambda node: view_of(facts, batch, states, node, is_joined=True)
    )
    answers.update(asked)
    states.update({f"{name}:0": answer.outputs[0] for name, answer in asked.items()})
    answers.update(repeated_ops(flat, properties, answers, states, kept_whole or {}))
    return Decisions(
        facts,
        answers,
        states,
        batch,
        dict(axis_of_feed),
        not_cut=frozenset(not_cut),
        refused=facts.refused - analysis.may_be_dead,
    )


def _fed_states(flat: FlatGraph, batch: int, axis_of_feed: Mapping[str, int]) -> dict[str, State]:
    """How inputs are cut; what is fed for several batches holds them one behind another."""
    fed: dict[str, State] = {tensor: Sharded(axis) for tensor, axis in axis_of_feed.items()}
    for spec in flat.feeds:
        if spec.tensor in fed:
            axis = axis_of_feed[spec.tensor]
            fed[spec.tensor] = Sharded(axis, max((spec.shape or ())[axis] // batch, 1))
    return fed

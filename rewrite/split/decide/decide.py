"""What becomes of every op of a step, and in which state every tensor is."""

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, tensor_of, with_index
from graphs.protos import Shape, is_open
from rewrite.split.constant_folding import SHAPE_OPS, KnownValues
from rewrite.split.decide.analysis import Analysis, Answered, view_of
from rewrite.split.decide.loops import function_answer
from rewrite.split.decide.replicate_small import repeated_ops
from rewrite.split.decision import Answer, AskedShape, DecidedGraph, Split, StayWhole
from rewrite.split.functions import Bodies
from rewrite.split.rules.layout import placed_in
from rewrite.split.rules.op_view import OpView, StayWholeError
from rewrite.split.rules.table import ELEMENTWISE, RULES, Rule
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Place, Sharded, State

# Makes whole tensors in parts where nothing reads them but parts.
#
# A gradient that is spread over the batch (BroadcastTo, Tile, Fill) would be made whole on one
# device and sent in pieces to all others. Where every reader wants the same part of it, each shard
# makes its own part: of a row that is the same for all entries, nothing has to be cut at all.

_SHAPED = frozenset({"Reshape", "ExpandDims", "Squeeze"})


def parts_on_demand(
    flat: FlatGraph,
    properties: TensorProperties,
    answers: Mapping[str, Answer],
    view_of: Callable[[object], OpView],
) -> dict[str, Split]:
    """{whole op: the answer that makes its output in the parts that all its readers want}."""
    wanted: dict[str, set[State]] = defaultdict(set)
    for fetch in flat.fetches:
        if ":" in fetch:
            wanted[with_index(fetch)].add(WHOLE)
    found: dict[str, Split] = {}
    kept = {op_of(spec.tensor) for spec in flat.feeds} | flat.unit_of_node.keys()
    for node in reversed(flat.graph_def.node):
        answer = answers[node.name]
        wants = wanted[f"{node.name}:0"]
        if answer == StayWhole() and len(wants) == 1 and node.name not in kept:
            (state,) = wants
            if isinstance(state, Sharded) and len(properties.dtype_of[node.name]) == 1:
                made = _in_parts(view_of(node), state, properties)
                if made is not None:
                    found[node.name] = answer = made
        if node.op in SHAPE_OPS:
            continue  # it asks for a shape, in whatever parts
        for position, name in enumerate(data_inputs(node)):
            is_split = isinstance(answer, Split)
            if is_split and position in answer.shape_inputs:  # type: ignore[union-attr]
                continue
            read = answer.inputs[position] if is_split else WHOLE  # type: ignore[union-attr]
            wanted[tensor_of(name)].add(read)
    return found


def _in_parts(view: OpView, state: Sharded, properties: TensorProperties) -> Split | None:
    """How an op whose inputs are whole makes such parts; None if it better stays whole."""
    result = view.output_shapes[0]
    if result is None or any(is_open(each.shape) for each in view.inputs):
        return None  # a dimension of unknown size may be one that is stretched, or the batch
    op, sizes = view.node.op, {state.axis: state}
    answer: Split | None
    if op == "Fill":
        answer = Split((WHOLE, WHOLE), (state,), {0: sizes})
    elif op == "Tile" and (view.inputs[0].shape or ())[state.axis] == 1:
        answer = Split((WHOLE, WHOLE), (state,), {1: sizes})
    elif op in _SHAPED:
        return _reshaped(view, state, result)
    elif op == "BroadcastTo" or op in ELEMENTWISE or (op == "MatMul" and state.axis == 0):
        answer = _by_rule(view, state, properties)
    else:
        return None
    told = () if answer is None else answer.shape_inputs
    return answer if all(view.inputs[each].value is not None for each in told) else None


def _by_rule(view: OpView, state: Sharded, properties: TensorProperties) -> Split | None:
    """At most one input has to be cut, and that is no larger than what would be cut."""
    try:
        answer = RULES[view.node.op](dataclasses.replace(view, wanted=state))
    except StayWholeError:
        return None
    if not isinstance(answer, Split):
        return None
    read = zip(view.node.input, answer.inputs, strict=False)
    sizes = [properties.num_bytes(name) for name, own in read if own != WHOLE]
    if len(sizes) > 1 or sum(sizes) > properties.bytes_of[view.node.name][0]:
        return None
    return answer


def _reshaped(view: OpView, state: Sharded, result: tuple[int, ...]) -> Split | None:
    """Reshape and its like, the other way round."""
    shape = view.inputs[0].shape or ()
    stride = math.prod(result[state.axis + 1 :]) * state.inner
    own = placed_in(shape, stride, view.batch) if min((*shape, *result), default=1) > 0 else None
    if own is None or (view.node.op == "Squeeze" and not view.attr("squeeze_dims").list.i):
        return None
    wholes = (WHOLE,) * (len(view.inputs) - 1)
    if view.node.op != "Reshape":
        return Split((own, *wholes), (state,))
    if view.inputs[1].value is None:
        return None
    return Split((own, *wholes), (state,), {1: {state.axis: state}})


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
      pieces: {VarHandleOp: how its variable is cut}, where parts are not those of a batch; of that
        `batch` is the number.
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
    pieces: Mapping[str, Sharded] = dataclasses.field(default_factory=dict)

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
        return bool(self.pieces and self.open_axes) or any(
            a in self.open_axes.get(feed, ()) for feed, a in self.axis_of_feed.items()
        )


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
    pieces: Mapping[str, Sharded] | None = None,
    answered: Answered | None = None,
) -> Decisions:
    """Asks the rules for every op, in the order of the graph.

    Args:
      properties: of its tensors, at this batch size.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}.
      kept_whole: {op that must not be split: why}.
      not_cut: whole ops whose outputs have no parts, though they look as if they had the batch.
      left_whole: ops that are not split, though they may be: what they make is cut again.
      bodies: the functions of the step, by the same rules, as they were opened and decided before.
      values: of the step's tensors, as far as no run can change them; found where not given.
      pieces: {VarHandleOp: how its variable is cut}; such a variable is in `batch` pieces.
      answered: what ops of this step have answered at this batch; new answers are added.
    """
    bodies = bodies or Bodies(flat.graph_def)
    analysis = Analysis(
        batch, flat, kept_whole or {}, rules, function_answer, not_cut, left_whole, bodies, answered
    )
    values = values or KnownValues(flat, properties)
    fed: dict[str, State] = {tensor: Sharded(axis) for tensor, axis in axis_of_feed.items()}
    for spec in flat.feeds:  # what is fed for several batches holds them one behind another
        if spec.tensor in fed:
            axis = axis_of_feed[spec.tensor]
            fed[spec.tensor] = Sharded(axis, max((spec.shape or ())[axis] // batch, 1))
    fed.update({f"{handle}:0": state for handle, state in (pieces or {}).items()})
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
        pieces=pieces or {},
    )

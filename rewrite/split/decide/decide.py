"""What becomes of every op of a step, and in which state every tensor is."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence, Set

from graphs.building.frames import depth_in_conditionals
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.time_limit import require_time
from graphs.names import data_inputs, op_of, tensor_of, with_index
from graphs.protos import NodeDef, Nodes
from rewrite.split.constant_folding import SHAPE_OPS, KnownValues
from rewrite.split.decide.list_facts import Element
from rewrite.split.decide.loops import function_answer, in_a_sum
from rewrite.split.decide.per_example_rows import block_of_rows
from rewrite.split.decide.replicate_small import repeated_ops
from rewrite.split.decide.shape_facts import Facts
from rewrite.split.decide.sliced_reads import parts_on_demand
from rewrite.split.decision import Answer, AskedShape, Shape, Split, StayWhole, is_open
from rewrite.split.functions import Bodies, functions_of
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.rules.lists import (
    LIST_RULES,
    LIST_SHAPE_OPS,
    NEEDED_WHOLE,
    OPTIONAL_NEEDED_WHOLE,
    ROOTS,
)
from rewrite.split.rules.op_view import InputView, OpView, StayWholeError
from rewrite.split.rules.segments import SEGMENTS
from rewrite.split.rules.special import TENSORFLOW_1
from rewrite.split.rules.table import RULES, Rule
from rewrite.split.states import SUM, WHOLE, Listed, Optioned, Place, Sharded, State, can_be_cut

MISREAD = "TensorFlow's graph optimizer would read the first part in place of each other one"
"""Why a part would not be itself. Grappler turns Max(Sigmoid(x)) into Sigmoid(Max(x)), and
ArgMax(Sigmoid(x)) into ArgMax(x), and forgets on the way which output of its op x is
(`OptimizeMaxOrMinOfMonotonicStage` of TensorFlow 2.21): of the parts that one SplitV makes, all
become the first. So such a Max stays whole."""
_EXTREMES = frozenset(
    """
    ArgMax ArgMin Max MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Min UnsortedSegmentMax
    UnsortedSegmentMin
    """.split()
)
_MONOTONIC = frozenset(
    """
    Acos Acosh Asin Asinh Atan Atanh Ceil Elu Erf Erfc Exp Expm1 Floor Log Log1p Neg Relu Relu6 Rint
    Rsqrt Selu Sigmoid Sign Sinh Softplus Softsign Sqrt Tanh
    """.split()
)
_PASSING = frozenset("Identity IdentityN PreventGradient StopGradient".split())
LEFT_WHOLE = "its weights would take longer to send than what it reads and makes of the batch"
"""Why an op is whole that was asked to be, though it could be split."""


@dataclasses.dataclass(frozen=True)
class Decisions:
    """How a step is split.

    Attributes:
      batch: how many entries the batch has; of a step that takes its inputs apart into several
        batches, one of these.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}; feeds that stay whole are left
        out.
      answer_of_op: {op: what becomes of it}.
      state_of_tensor: {"op:i": state}.
      values: of tensors that no run can change, for this batch size.
      properties: of the step's tensors, with what was found of loops and lists.
      is_open: whether the step takes inputs of several sizes, so that all sizes are computed in
        each run.
      elements: {TensorList "op:i": what its elements are}.
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
    answer_of_op: Mapping[str, Answer]
    state_of_tensor: Mapping[str, State]
    values: KnownValues
    properties: TensorProperties
    is_open: bool = False
    elements: Mapping[str, Element] = dataclasses.field(default_factory=dict)
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
    analysis = _Analysis(batch, flat, kept_whole or {}, rules, not_cut, left_whole, bodies)
    values = values or KnownValues(flat, properties)
    fed = _fed_states(flat, batch, axis_of_feed)
    while True:  # ends: what is known of a list only grows
        facts = Facts(flat, properties, values)
        answers, states = analysis.ops(facts, fed, "")
        tensors = [states[with_index(fetch)] for fetch in flat.fetches if ":" in fetch]
        analysis.elements.fail_all(tensors)
        if not analysis.elements.learn():
            break
    properties, values = facts.properties, facts.values
    asked = parts_on_demand(
        flat, properties, answers, lambda node: _view(facts, batch, states, node, is_joined=True)
    )
    answers.update(asked)
    states.update({f"{name}:0": answer.outputs[0] for name, answer in asked.items()})
    answers.update(repeated_ops(flat, properties, answers, states, kept_whole or {}))
    return Decisions(
        batch,
        dict(axis_of_feed),
        answers,
        states,
        values,
        properties,
        elements=facts.elements,
        not_cut=frozenset(not_cut),
        refused=facts.refused - analysis.may_be_dead,
    )


_ROW_BY_ROW = frozenset({"LookupTableFind", "LookupTableFindV2"})
"""Ops that stay whole beside what they read, a table, but look each entry up by itself."""


def _fed_states(flat: FlatGraph, batch: int, axis_of_feed: Mapping[str, int]) -> dict[str, State]:
    """How inputs are cut; what is fed for several batches holds them one behind another."""
    fed: dict[str, State] = {tensor: Sharded(axis) for tensor, axis in axis_of_feed.items()}
    for spec in flat.feeds:
        if spec.tensor in fed:
            axis = axis_of_feed[spec.tensor]
            fed[spec.tensor] = Sharded(axis, max((spec.shape or ())[axis] // batch, 1))
    return fed


class _Analysis:
    """Decides for the ops of a step and of the functions that they run."""

    def __init__(
        self,
        batch: int,
        flat: FlatGraph,
        kept_whole: Mapping[str, str],
        rules: Mapping[str, Rule],
        not_cut: Collection[str],
        left_whole: Collection[str],
        bodies: Bodies,
    ):
        self.batch = batch
        self._not_cut, self._left_whole = not_cut, frozenset(left_whole)
        self._kept_whole = kept_whole
        self._rules = rules
        self.elements = ListElements()
        self._causes: dict[str, StayWhole] = {}
        self.bodies = bodies
        depth = depth_in_conditionals(flat.graph_def.node, flat.unit_of_node)
        self.may_be_dead = {name for name, inside in depth.items() if inside}

    def ops(
        self, facts: Facts, given: Mapping[str, State], scope: str
    ) -> tuple[dict[str, Answer], dict[str, State]]:
        """See loops.Analysis."""
        states = dict(given)
        answers: dict[str, Answer] = {}
        for node in facts.flat.graph_def.node:
            require_time()
            facts.complete(node)
            view = _view(facts, self.batch, states, node, is_joined=not scope)
            answer = self._answer(facts, view, scope)
            is_split = isinstance(answer, Split) and not scope
            if is_split and _would_be_misread(node, facts.flat.nodes, answers, states):
                answer = StayWhole(MISREAD)
            answers[node.name] = answer
            for index in range(len(facts.dtype_of[node.name])):
                tensor = f"{node.name}:{index}"
                if tensor in given:
                    continue
                if not isinstance(answer, Split) and self._is_never_cut(facts, node, scope):
                    states[tensor] = WHOLE
                else:
                    states[tensor] = _state(view, answer, index)
        return answers, states

    def _is_never_cut(self, facts: Facts, node: NodeDef, scope: str) -> bool:
        """Whether nothing that a whole op makes is cut again; nothing is in a body."""
        if scope or node.name in self._not_cut or node.name in self.may_be_dead:
            return True
        return node.name in facts.flat.unit_of_node and not functions_of(node, facts.flat.library)

    def _answer(self, facts: Facts, view: OpView, scope: str) -> Answer:
        node = view.node
        answer: Answer
        if not scope and node.name in self._kept_whole:
            answer = StayWhole(self._kept_whole[node.name])
        else:
            answer = self._by_rule(facts, view, scope)
        if isinstance(answer, Split) and (why := _why_not(view, answer)):
            answer = StayWhole(why)
        if not scope and node.name in self._left_whole and may_be_left_whole(answer):
            answer = StayWhole(LEFT_WHOLE, outputs=answer.outputs)
        if isinstance(answer, StayWhole) and not scope and answer.reason:
            answer = self._first_cause(node.name, answer)
        if isinstance(answer, StayWhole) and not (scope and node.op in LIST_SHAPE_OPS):
            self.elements.fail_all([*view.states])
        return answer

    def _first_cause(self, name: str, answer: StayWhole) -> StayWhole:
        """What made a list whole in an earlier pass is why its loop is whole now."""
        if not any(each in answer.reason for each in (NEEDED_WHOLE, OPTIONAL_NEEDED_WHOLE)):
            self._causes[name] = answer
        return dataclasses.replace(self._causes.get(name, answer), opened=answer.opened)

    def _by_rule(self, facts: Facts, view: OpView, scope: str) -> Answer:
        node = view.node
        if node.op in ROOTS:
            return ROOTS[node.op](view, self.elements, f"{scope}{node.name}")
        if all(state == WHOLE for state in view.states):
            return StayWhole()
        if not scope and node.name in self.may_be_dead:
            return StayWhole(TENSORFLOW_1)
        if node.name in facts.flat.unit_of_node:
            return function_answer(self, facts, scope, view)
        if node.op in SHAPE_OPS or (scope and node.op in LIST_SHAPE_OPS):
            return StayWhole()
        if any(isinstance(state, Listed | Optioned) for state in view.states):
            list_rule = LIST_RULES.get(node.op)
            if list_rule is None:
                return StayWhole("there is no rule for what it does with a TensorList or Optional")
            return list_rule(view, self.elements, f"{scope}{node.name}")
        if node.op in LIST_RULES and node.op.startswith("TensorList"):
            return StayWhole(NEEDED_WHOLE)
        if scope and (answer := in_a_sum(view)):
            return answer
        rule = self._rules.get(node.op)
        if rule is None:
            # A gradient that an optimizer reads is summed for it: no reason to complain.
            return StayWhole("there is no rule for this op type" if view.sharded else "")
        try:
            return rule(view)
        except StayWholeError as found:
            return found.answer


def _why_not(view: OpView, answer: Split) -> str:
    """Why an op can't be given what it needs to be split; empty where it can."""
    for position, entries in answer.shape_inputs.items():
        value = view.inputs[position].value
        if value is None:
            return "a size that it needs is not known before the run"
        sizes = value.reshape(-1)
        # A slice may end behind the end.
        if any(-1 != sizes[e] < state.size(view.batch) for e, state in entries.items()):
            return "a size that it needs is not that of the batch"
    for each, state in zip(view.inputs, answer.inputs, strict=True):
        if each.state == WHOLE and not can_be_cut(each.shape, state, view.batch):
            return "a tensor that it needs in parts has no such parts, as far as is known"
    for shape, state in zip(view.output_shapes, answer.outputs, strict=True):
        if not is_open(shape) and not can_be_cut(shape, state, view.batch):
            return "what it makes is more than its parts together"  # segments that have no rows
    return ""


def may_be_left_whole(answer: Answer) -> bool:
    """Whether an op that is split may as well be one: it runs no function and holds no list."""
    if not isinstance(answer, Split) or answer.bodies or answer.is_repeated:
        return False
    states = (*answer.inputs, *answer.outputs)
    return not any(isinstance(state, Listed | Optioned) for state in states)


def _state(view: OpView, answer: Answer, index: int) -> State:
    """Of an output. What a whole op makes of parts is cut again, where it still has the batch."""
    if isinstance(answer, Split):
        return answer.outputs[index]
    shape = view.output_shapes[index]
    if answer.outputs:
        state = answer.outputs[index]
        is_cut = isinstance(state, Sharded) and can_be_cut(shape, state, view.batch)
        return state if is_cut else WHOLE
    is_row_by_row = view.node.op in _ROW_BY_ROW
    is_of_numbers = shape is not None and len(shape) > 1 and "float" in view.output_dtypes[index]
    if shape is None or not (is_row_by_row or is_of_numbers):
        return WHOLE
    for position in view.sharded:
        state = view.inputs[position].state
        assert isinstance(state, Sharded)
        if state.axis < len(shape) and shape[state.axis] == state.size(view.batch):
            return state
    return WHOLE


def _view(
    facts: Facts, batch: int, states: Mapping[str, State], node: NodeDef, is_joined: bool
) -> OpView:
    """What is shown of an op; `is_joined`: what is in parts can be joined before it."""
    inputs = []
    for name in data_inputs(node):
        tensor = tensor_of(name)
        # An input that comes later closes a loop, which is a unit.
        state = states.get(tensor, WHOLE)
        # Terms that are scaled or cast before they are added don't overflow where their sum does,
        # and a step that scales its loss leaves an update out where a gradient overflows.
        if is_joined and state == SUM and facts.dtype(tensor) == "float16":
            state = WHOLE
        inputs.append(
            InputView(
                state,
                facts.shape(tensor),
                facts.dtype(tensor),
                facts.value(tensor),
                block_of_rows(facts, tensor, batch) if node.op in SEGMENTS else 0,
            )
        )
    name = node.name
    return OpView(node, batch, inputs, facts.shape_of[name], facts.dtype_of[name])


def _would_be_misread(
    node: NodeDef, nodes: Nodes, answers: Mapping[str, Answer], states: Mapping[str, State]
) -> bool:
    """Whether an op that is split finds the largest or smallest of what a cut hands to such ops.

    Args:
      node: the op.
      nodes: {name: NodeDef} of the step.
      answers: what became of each op before it.
      states: of each tensor before it.
    """
    if node.op not in _EXTREMES:
        return False
    tensor, is_monotonic = _first_of(node), False
    while (made_by := nodes.get(op_of(tensor))) and made_by.op in _MONOTONIC | _PASSING:
        if not data_inputs(made_by):
            break
        is_monotonic = is_monotonic or made_by.op in _MONOTONIC
        tensor = _first_of(made_by)
    is_cut = not isinstance(answers.get(op_of(tensor)), Split)
    return is_monotonic and is_cut and isinstance(states.get(tensor), Sharded)


def _first_of(node: NodeDef) -> str:
    return tensor_of(data_inputs(node)[0])

"""Asks the rules for every op of a graph: of a step's, or of a function's that it runs."""

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from graphs import op_types
from graphs.building.frames import depth_in_conditionals
from graphs.flat_graph import FlatGraph
from graphs.function_library import CUT
from graphs.host.time_limit import require_time
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import NodeDef, Nodes, is_open
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decide.given import Given
from rewrite.split.decide.per_example_rows import block_of_rows
from rewrite.split.decision import Answer, DecidedFunction, Split, StayWhole
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
from rewrite.split.rules.table import Rule
from rewrite.split.shape_facts import Facts
from rewrite.split.states import SUM, WHOLE, Listed, Optioned, Sharded, State, can_be_cut

MISREAD = "TensorFlow's graph optimizer would read the first part in place of each other one"
"""Why a part would not be itself. Grappler turns Max(Sigmoid(x)) into Sigmoid(Max(x)), and
ArgMax(Sigmoid(x)) into ArgMax(x), and forgets on the way which output of its op x is
(`OptimizeMaxOrMinOfMonotonicStage` of TensorFlow 2.21): of the parts that one SplitV makes, all
become the first. So such a Max stays whole."""
_EXTREMES = op_types.listed("extremes")
_MONOTONIC = op_types.listed("monotonic")
_PASSING = frozenset("Identity IdentityN PreventGradient StopGradient".split())
LEFT_WHOLE = "its weights would take longer to send than what it reads and makes of the batch"
"""Why an op is whole that was asked to be, though it could be split."""
_DIVIDE = frozenset({"RealDiv", "DivNoNan"})
"""Divisions of floating-point numbers, which do not round to integers."""
_ROW_BY_ROW = frozenset({"LookupTableFind", "LookupTableFindV2"})
"""Ops that stay whole beside what they read, a table, but look each entry up by itself."""


Answered = dict[tuple[str | State, ...], tuple[Answer, Sequence[State]]]
"""{(op, state of each input): its answer, and the states of its outputs}"""


class Analysis:
    """Decides for the ops of a step and of the functions that they run.

    Attributes:
      batch: how many entries the batch has.
      elements: what is known of its lists.
      may_be_dead: ops that not every run needs.
    """

    def __init__(
        self,
        batch: int,
        flat: FlatGraph,
        kept_whole: Mapping[str, str],
        rules: Mapping[str, Rule],
        function_rule: "FunctionRule",
        not_cut: Collection[str],
        left_whole: Collection[str],
        bodies: Bodies,
        answered: Answered | None = None,
    ):
        """Decides nothing yet; what other analyses have `answered` is asked again where lists are.

        Those learn of what they hold, and of its shapes.
        """
        self.batch = batch
        self._not_cut, self._left_whole = not_cut, frozenset(left_whole)
        self._kept_whole = kept_whole
        self._rules, self._function_rule = rules, function_rule
        self.elements = ListElements()
        self._causes: dict[str, StayWhole] = {}
        self._bodies = bodies
        depth = depth_in_conditionals(flat.graph_def.node, flat.unit_of_node)
        self.may_be_dead = {name for name, inside in depth.items() if inside}
        learns = flat.unit_of_node or any(node.op in ROOTS for node in flat.graph_def.node)
        self._answered = None if learns else answered

    def ops(
        self, facts: Facts, given: Mapping[str, State], scope: str
    ) -> tuple[dict[str, Answer], dict[str, State]]:
        """What becomes of each op, and the state of each tensor.

        Args:
          given: {tensor that the graph is given: its state}.
          scope: what the names of the graph's lists begin with, unlike those of other graphs; empty
            for the main graph.
        """
        states = dict(given)
        answers: dict[str, Answer] = {}
        for node in facts.flat.graph_def.node:
            require_time()
            facts.complete(node)
            tensors = [f"{node.name}:{index}" for index in range(len(facts.dtype_of[node.name]))]
            read = [states.get(tensor_of(name), WHOLE) for name in data_inputs(node)]
            key = (node.name, *read)
            is_kept = bool(read) and not scope and node.op not in _EXTREMES
            answered = self._answered if is_kept and self._answered is not None else {}
            if key not in answered:
                view = view_of(facts, self.batch, states, node, is_joined=not scope)
                answer = self._answer(facts, view, scope)
                piece = given.get(f"{node.name}:0") if node.op == "VarHandleOp" else None
                if isinstance(piece, Sharded):
                    answer = _pieces_of(node, piece, self.batch)
                is_split = isinstance(answer, Split) and not scope
                if is_split and _would_be_misread(node, facts.flat.nodes, answers, states):
                    answer = StayWhole(MISREAD)
                stays = not isinstance(answer, Split) and self._is_never_cut(facts, node, scope)
                made = [WHOLE if stays else _state(view, answer, i) for i in range(len(tensors))]
                answered[key] = answer, made
            answers[node.name], of_outputs = answered[key]
            new = zip(tensors, of_outputs, strict=True)
            states.update((tensor, state) for tensor, state in new if tensor not in given)
        return answers, states

    def function(self, scope: str, name: str, given: Given) -> DecidedFunction | None:
        """What becomes of a function that is given this; None where it can't be opened.

        Its results are in the states in which it makes them.
        """
        if any(each.source or isinstance(each.state, Optioned) for each in given):
            return self._decided(scope, name, given)  # what is outside counts, too
        key = (
            self.batch,
            scope,
            name,
            tuple((each, each.roots) for each in given),
            self.elements.known_in(scope),
        )
        known, lists = self._bodies.decided, self.elements
        if key not in known:
            self.elements = lists.for_body()
            try:
                known[key] = self._decided(scope, name, given), self.elements
            finally:
                self.elements = lists
        decided, found = known[key]
        lists.take(found)
        return decided

    def _decided(self, scope: str, function: str, given: Given) -> DecidedFunction | None:
        body = self._bodies.opened(function, [each.known for each in given])
        if body is None:
            return None
        facts = Facts(body.flat, body.properties, body.values)
        states = {}
        for name, argument in zip(body.arguments, given, strict=True):
            states[name] = argument.state
            if argument.element is not None:
                facts.elements[name] = argument.element
            if argument.source is not None:
                facts.given[name] = argument.source
        answers, states_of = self.ops(facts, states, scope)
        results = [states_of[tensor] for tensor in body.outputs]
        return DecidedFunction(facts, answers, states_of, body, results)

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
            return self._function_rule(self, facts, scope, view)
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


def _pieces_of(node: NodeDef, state: Sharded, count: int) -> Split:
    """A variable in pieces of one size, each of which is one."""
    shape = copy.deepcopy(node.attr["shape"])
    shape.shape.dim[state.axis].size = state.size(count) // count
    cut = type(node.attr["shape"])()
    cut.list.i.extend([state.axis, state.outer])
    return Split((), (state,), attrs={"shape": shape, CUT: cut})


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


def view_of(
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
    """Whether an op that is split finds the largest or smallest of what a cut hands to such ops."""
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


def in_a_sum(view: OpView) -> Answer | None:
    """In a body: terms of a sum that a whole tensor scales, or that get it as one more term.

    So what a loop accumulates is summed once, behind the loop.
    """
    if SUM not in view.states or any(state not in (WHOLE, SUM) for state in view.states):
        return None
    outputs = (SUM,) * len(view.output_shapes)
    alike = len({each.shape for each in view.inputs}) == 1
    if view.node.op in ("Add", "AddV2", "AddN", "Sub") and alike:
        return Split((SUM,) * len(view.inputs), outputs)
    if view.node.op == "Mul" or (view.node.op in _DIVIDE and view.states[0] == SUM):
        return Split(tuple(view.states), outputs) if view.states.count(SUM) == 1 else None
    return None


FunctionRule = Callable[[Analysis, Facts, str, OpView], Answer]
"""What becomes of an op that runs functions; of what graph, and under which scope."""

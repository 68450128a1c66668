"""What becomes of every op of a step, and in which state every tensor is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input, with_index
from rewrite.split.known_values import SHAPE_OPS, KnownValues
from rewrite.split.on_demand import parts_on_demand
from rewrite.split.op_view import Answer, InputView, OpView, Split, StayWhole
from rewrite.split.repeat import repeated_ops
from rewrite.split.rules.table import RULES, Rule
from rewrite.split.states import WHOLE, Sharded, State


@dataclasses.dataclass(frozen=True)
class Decisions:
    """How a step is split.

    Attributes:
      batch: how many entries the batch has.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}; feeds that stay whole are left
        out.
      answer_of_op: {op: what becomes of it}.
      state_of_tensor: {"op:i": state}.
      values: of tensors that no run can change, for this batch size.
      is_open: whether the step takes any batch size, so that all sizes are computed in each run.
    """

    batch: int
    axis_of_feed: Mapping[str, int]
    answer_of_op: Mapping[str, Answer]
    state_of_tensor: Mapping[str, State]
    values: KnownValues
    is_open: bool = False


def decide(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    axis_of_feed: Mapping[str, int],
    kept_whole: Mapping[str, str] | None = None,
    rules: Mapping[str, Rule] = RULES,
) -> Decisions:
    """Asks the rules for every op, in the order of the graph.

    Args:
      flat: the step with its calls opened.
      properties: of its tensors, at this batch size.
      batch: how many entries the batch has.
      axis_of_feed: {fed tensor "op:0": which axis is its batch}.
      kept_whole: {op that must not be split: why}.
      rules: {op type: its rule}.
    """
    states: dict[str, State] = {}
    answers: dict[str, Answer] = {}
    values = KnownValues(flat, properties)
    kept_whole = kept_whole or {}
    for node in flat.graph_def.node:
        outputs = properties.dtype_of[node.name]
        answer: Answer
        if node.name in kept_whole:
            answer = StayWhole(kept_whole[node.name])
        else:
            view = _view(properties, values, states, batch, node)
            answer = _answer(flat, view, rules)
        answers[node.name] = answer
        for index in range(len(outputs)):
            tensor = f"{node.name}:{index}"
            if tensor in axis_of_feed:
                states[tensor] = Sharded(axis_of_feed[tensor])
            else:
                states[tensor] = answer.outputs[index] if isinstance(answer, Split) else WHOLE
    asked = parts_on_demand(
        flat, properties, answers, lambda node: _view(properties, values, states, batch, node)
    )
    answers.update(asked)
    states.update({f"{name}:0": answer.outputs[0] for name, answer in asked.items()})
    answers.update(repeated_ops(flat, properties, answers, states, kept_whole))
    return Decisions(batch, dict(axis_of_feed), answers, states, values)


def _answer(flat: FlatGraph, view: OpView, rules: Mapping[str, Rule]) -> Answer:
    if all(state == WHOLE for state in view.states):
        return StayWhole()
    if view.node.name in flat.unit_of_node:
        unit = flat.unit_of_node[view.node.name]
        return StayWhole(f"it is part of {flat.unit_reason.get(unit, 'a unit')}")
    if view.node.op in SHAPE_OPS:
        return StayWhole()
    rule = rules.get(view.node.op)
    if rule is None:
        # A gradient that an optimizer reads is summed for it: no reason to complain.
        return StayWhole() if not view.sharded else StayWhole("there is no rule for this op type")
    answer = rule(view)
    if isinstance(answer, Split) and any(view.inputs[i].value is None for i in answer.shape_inputs):
        return StayWhole("a size that it needs is not known before the run")
    return answer


def _view(
    properties: TensorProperties,
    values: KnownValues,
    states: Mapping[str, State],
    batch: int,
    node: object,
) -> OpView:
    inputs = []
    for name in node.input:  # type: ignore[attr-defined]
        if name.startswith("^"):
            continue
        source = parse_input(name)
        tensor = with_index(source.tensor)
        inputs.append(
            InputView(
                # An input that comes later closes a loop, which is a unit.
                states.get(tensor, WHOLE),
                properties.shape_of[source.op][source.output],
                properties.dtype_of[source.op][source.output],
                values.value(tensor),
            )
        )
    name = node.name  # type: ignore[attr-defined]
    return OpView(node, batch, inputs, properties.shape_of[name], properties.dtype_of[name])

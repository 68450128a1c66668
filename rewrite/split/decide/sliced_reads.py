"""Makes whole tensors in parts where nothing reads them but parts.

A gradient that is spread over the batch (BroadcastTo, Tile, Fill) would be made whole on one device
and sent in pieces to all others. Where every reader wants the same part of it, each shard makes its
own part: of a row that is the same for all entries, nothing has to be cut at all.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, tensor_of, with_index
from graphs.protos import is_open
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.layout import placed_in
from rewrite.split.rules.op_view import OpView, StayWholeError
from rewrite.split.rules.table import ELEMENTWISE, RULES
from rewrite.split.states import WHOLE, Sharded, State

_SHAPED = frozenset({"Reshape", "ExpandDims", "Squeeze"})


def parts_on_demand(
    flat: FlatGraph,
    properties: TensorProperties,
    answers: Mapping[str, Answer],
    view_of: Callable[[object], OpView],
) -> dict[str, Split]:
    """{whole op: the answer that makes its output in the parts that all its readers want}.

    Args:
      flat, properties: the step.
      answers: what becomes of each op so far.
      view_of: what a rule is shown of an op.
    """
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
        data = data_inputs(node)
        for position, name in enumerate(data):
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

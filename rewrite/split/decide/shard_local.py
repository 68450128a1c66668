"""Whether a shard's copy of a function can work on its part alone."""

from graphs.names import data_inputs, tensor_of
from graphs.protos import Library, NodeDef
from rewrite.split.decision import DecidedFunction, Split
from rewrite.split.effects import _effect_in
from rewrite.split.states import WHOLE, Listed, Optioned, Partial, Sharded, State, can_be_cut


def why_not_local(split: DecidedFunction, library: Library, batch: int) -> str:
    """Why a shard can't run a function on its own; empty where it can."""
    if effect := _effect_in(split.body.function, library):
        return f"its body has side effects or draws random numbers ({effect})"
    for node in split.body.flat.graph_def.node:
        answer = split.answer_of_op[node.name]
        states = [split.state_of_tensor[tensor_of(name)] for name in data_inputs(node)]
        if node.name in split.body.effects:
            return f"its body has side effects or draws random numbers ({node.op})"
        if isinstance(answer, Split):
            if answer.row_inputs:  # which the main graph's copies get with their numbers moved
                return f"it names rows by where in the batch they begin ({node.op})"
            needs = zip(answer.inputs, states, strict=True)
            if not all(is_reachable(have, need) for need, have in needs):
                return f"an iteration would need parts of other shards ({node.op})"
        elif any(state != WHOLE for state in states) and not _is_known(split, node):
            reason = getattr(answer, "reason", "")
            return f"an iteration would need parts of other shards ({node.op}" + (
                f": {reason})" if reason else ")"
            )
    for tensor, state in zip(split.body.outputs, split.results, strict=True):
        have = split.state_of_tensor[tensor]
        is_cut_here = have != state and have == WHOLE
        if not is_reachable(have, state) or (
            is_cut_here and not can_be_cut(split.facts.shape(tensor), state, batch)
        ):
            return "an iteration would need parts of other shards"
    return ""


def is_reachable(have: State, need: State) -> bool:
    """Whether a shard alone can make a part in one state of what it has in another."""
    if isinstance(have, Listed) and isinstance(need, Listed):
        return have.element in (None, need.element)  # None: the next pass knows more
    if isinstance(need, Optioned) and need.held is None:
        return isinstance(have, Optioned) or have == WHOLE  # it has one, whatever is in it
    is_of_whole = (isinstance(need, Sharded) and need.outer == 1) or need == Partial()
    return have == need or (have == WHOLE and is_of_whole)


def _is_known(split: DecidedFunction, node: NodeDef) -> bool:
    """Whether all that an op makes is known before the run."""
    count = len(split.body.properties.dtype_of[node.name])
    return count > 0 and all(
        split.facts.value(f"{node.name}:{i}") is not None for i in range(count)
    )

"""The order of reads and writes that only sizes keep, or what all shards have alike.

A graph may write a variable with what is computed of the shape of something that was read from it,
and say no more of their order. A split step has constants in the place of such numbers: nothing
would keep the write from coming first. Nor would anything where each shard has its own copy of a
loop or conditional that reads the variable, and the write takes a value that all copies return
alike: it takes that of the first. Nor would a batch normalisation that is taken apart: of what it
was given, some of its parts take less. So the order is said by a control edge before.
"""

import copy
import functools
import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from graphs import op_types
from graphs.building.frames import depth_in_conditionals, frame_stacks, loop_of
from graphs.building.op_outputs import op_definition
from graphs.by_key import by_key
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import Library, NodeDef
from rewrite.pass_base import RewriteError
from rewrite.split.effects import NEVER_WRITE, Variable, has_effect, variable_of_handle
from rewrite.split.functions import functions_of
from rewrite.split.reading.runs_before import bits, runs_before, with_nodes
from rewrite.split.split_step import SplitStep

_HANDS_ON = op_types.HANDLE | op_types.MERGES


def with_state_order(flat: FlatGraph) -> FlatGraph:
    """The step in which ops wait for others of one state where they might not when it is split.

    The same object comes back where there is nothing to be said.
    """
    missing = _missing(flat)
    if not missing:
        return flat

    def nodes_for(node: NodeDef) -> Sequence[NodeDef]:
        if node.name not in missing:
            return [node]
        new = copy.deepcopy(node)
        new.input.extend(f"^{op}" for op in missing[node.name])
        return [new]

    return with_nodes(flat, nodes_for)


def require_state_order(flat: FlatGraph, step: SplitStep, pieces: Collection[str] = ()) -> None:
    """Reads a split step: what came before a write, or after it, does so in all shards.

    Args:
      pieces: the ops that hold variables of which each shard has a piece of its own.

    Raises:
      RewriteError: two ops of one state may run in another order.
    """
    users = {h: names for h, names in _users_of_states(flat).items() if len(names) > 1}
    names = dict.fromkeys(name for each in users.values() for name in each)
    ends = op_types.MERGES | op_types.ENTER | op_types.EXIT
    writes = {
        name
        for name in names
        if has_effect(flat.nodes[name], flat.library) or flat.nodes[name].op in ends
    }
    there = {node.name for node in step.graph_def.node}
    ops_for = {name: [op for op in step.copies.get(name, [name]) if op in there] for name in names}
    bit_of, bit_there = bits(names), bits(op for ops in ops_for.values() for op in ops)
    before = runs_before(flat.graph_def, bit_of)
    before_there = runs_before(step.graph_def, bit_there, is_opened=True)
    for state, each in users.items():
        pairs = functools.partial(zip, strict=True) if state in pieces else itertools.product
        for write, other in itertools.product([name for name in each if name in writes], each):
            for first, then in ((write, other), (other, write)):
                if not before[then] & bit_of[first]:
                    continue
                if not _may_be_first(flat.nodes[first]) or not _may_be_late(flat.nodes[then]):
                    continue
                for op, late in pairs(ops_for[first], ops_for[then]):
                    if not before_there[late] & bit_there[op]:
                        raise RewriteError(
                            f"reading a split step: {late!r} may run before {op!r}, which uses "
                            "the same variable"
                        )


def _missing(flat: FlatGraph) -> Mapping[str, Sequence[str]]:
    """{op: those of the same state that come before it in ways that splitting may cut}."""
    users = [names for names in _users_of_states(flat).values() if len(names) > 1]
    every = dict.fromkeys(name for names in users for name in names)
    bit_of = bits(every)
    if not bit_of:
        return {}
    before = runs_before(flat.graph_def, bit_of)
    without = runs_before(flat.graph_def, bit_of, is_opened=True, is_split=True)
    results_of = _results_of(flat)
    readers = {name for name in every if _only_reads(flat.nodes[name], flat.library)}
    missing: dict[str, list[str]] = defaultdict(list)
    for names in users:
        for name in names:
            lost = before[name] & ~without[name] if _may_be_late(flat.nodes[name]) else 0
            for each in names if lost else ():
                is_lost = lost & bit_of[each] and _may_be_first(flat.nodes[each])
                if is_lost and not {name, each} <= readers:
                    missing[name] += [each, *results_of.get(each, ())]
    return {name: list(dict.fromkeys(ops)) for name, ops in missing.items() if ops}


def _only_reads(node: NodeDef, library: Library) -> bool:
    """Whether an op surely changes no state, nor does what it hands a state on to."""
    is_known = node.op in NEVER_WRITE or bool(functions_of(node, library))
    return is_known and not has_effect(node, library)


def _results_of(flat: FlatGraph) -> Mapping[str, list[str]]:
    """{op that runs functions: the ops that hand on its results}.

    Functions of TensorFlow 1 don't name their reads as what those behind a call have to wait for.
    What waits for the results, too, comes after what they are made of.
    """
    results_of: dict[str, list[str]] = defaultdict(list)
    for node in flat.graph_def.node:
        # One that waits for more might wait for what is to wait for it.
        source = op_of(node.input[0]) if node.op == "Identity" and len(node.input) == 1 else ""
        if source and functions_of(flat.nodes[source], flat.library):
            results_of[source].append(node.name)
    return results_of


def _users_of_states(flat: FlatGraph) -> Mapping[str, Sequence[str]]:
    """{op that holds a variable, table or queue: the ops that use it}.

    What uses it in a conditional of TensorFlow 1 may be dead, and what does so in a loop can't
    wait for ops outside of it, nor these for it. So for these stand the ops at the ends, too.
    """
    states_of: dict[str, tuple[str, ...]] = {}  # {op that hands on states: the ops that hold them}
    users: dict[str, dict[str, None]] = defaultdict(dict)
    holders: dict[Variable | str, str] = {}
    in_loop: dict[str, dict[str, None]] = defaultdict(dict)
    for node in flat.graph_def.node:
        data = data_inputs(node)
        is_op = node.op not in flat.library
        if not data and is_op and op_definition(node.op, node.name).is_stateful:
            key = variable_of_handle(node) if node.op == "VarHandleOp" else node.name
            states_of[node.name] = (holders.setdefault(key, node.name),)
        states = dict.fromkeys(s for name in data for s in states_of.get(parse_input(name).op, ()))
        if states and node.op in _HANDS_ON:
            states_of[node.name] = tuple(states)
        if loop := loop_of(node.name, flat.unit_of_node):
            in_loop[loop].update(states)
        else:
            for state in states:
                users[state][node.name] = None
    return {s: list(each) for s, each in _with_ends(flat, users, in_loop).items()}


def _with_ends(
    flat: FlatGraph,
    users: Mapping[str, Mapping[str, None]],
    in_loop: Mapping[str, Mapping[str, None]],
) -> Mapping[str, Mapping[str, None]]:
    """The same with the Enters and Exits of loops, and the Merges of conditionals."""
    nodes = flat.graph_def.node
    if not any(node.op in op_types.MERGES for node in nodes):
        return users
    found = {state: dict(each) for state, each in users.items()}
    states_of = by_key((name, state) for state, each in users.items() for name in each)
    depth, stacks = depth_in_conditionals(nodes, flat.unit_of_node), frame_stacks(nodes)
    inside: dict[str, dict[str, None]] = {}  # {op: states used before it, in its conditional}
    for node in nodes:
        name, loop = node.name, loop_of(node.name, flat.unit_of_node)
        used = dict.fromkeys(states_of.get(name, ()))
        for source in node.input:
            used.update(inside.get(op_of(source), {}))
        is_end = node.op in op_types.MERGES
        if loop:
            is_end = node.op in op_types.ENTER | op_types.EXIT and len(stacks[name]) == 1
            used.update(in_loop.get(loop, {}))
        for state in used if is_end else ():
            found.setdefault(state, {})[name] = None
        inside[name] = used if depth[name] > 0 and (not loop or node.op in op_types.EXIT) else {}
    return found


def _may_be_first(node: NodeDef) -> bool:
    """Whether another op of a state can wait for this one: not for what begins a loop."""
    return node.op not in op_types.ENTER


def _may_be_late(node: NodeDef) -> bool:
    """Whether it is to wait for another one: what is within does, not where it ends."""
    return node.op not in op_types.MERGES | op_types.EXIT

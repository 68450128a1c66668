"""The order of reads and writes that only sizes keep.

A graph may write a variable with what is computed of the shape of something that was read from it,
and say no more of their order. A split step has constants in the place of such numbers: nothing
would keep the write from coming first. So the order is said by a control edge before.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from graphs.building.op_outputs import op_definition
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, parse_input
from rewrite.split.decide import is_in_frames
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.merge_reads import with_nodes

_MAY_BE_CONSTANTS = SHAPE_OPS | {"Const"}
"""What a split step may have another op for, which waits for nothing."""


def with_state_order(flat: FlatGraph) -> FlatGraph:
    """The step in which ops wait for others of the same state where only sizes made them wait.

    Args:
      flat: the step with its calls opened.

    Returns:
      The step; the same object where there is nothing to be said.
    """
    missing = _missing(flat)
    if not missing:
        return flat
    rows = []
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        new = copy.deepcopy(node) if node.name in missing else node
        new.input.extend(f"^{op}" for op in missing.get(node.name, ()))
        rows.append((new, origin))
    return with_nodes(flat, rows)


def _missing(flat: FlatGraph) -> Mapping[str, Sequence[str]]:
    """{op: those of the same state that come before it by way of sizes alone}."""
    users = [names for names in _users_of_states(flat).values() if len(names) > 1]
    every = dict.fromkeys(name for names in users for name in names)
    bit_of = {name: 1 << i for i, name in enumerate(every)}
    if not bit_of:
        return {}
    before = _before(flat, bit_of, ())
    without = _before(flat, bit_of, _MAY_BE_CONSTANTS)
    missing: dict[str, list[str]] = defaultdict(list)
    for names in users:
        for name in names:
            lost = before[name] & ~without[name]
            missing[name] += [each for each in names if lost & bit_of[each]]
    return {name: list(dict.fromkeys(ops)) for name, ops in missing.items() if ops}


def _users_of_states(flat: FlatGraph) -> Mapping[str, list[str]]:
    """{op that holds a variable, table or queue: the ops that use it}."""
    state_of: dict[str, str] = {}  # {op that hands on a state: the op that holds it}
    users: dict[str, list[str]] = defaultdict(list)
    for node in flat.graph_def.node:
        data = data_inputs(node)
        if not data and op_definition(node.op, node.name).is_stateful:
            state_of[node.name] = node.name
        states = dict.fromkeys(s for name in data if (s := state_of.get(parse_input(name).op)))
        if states and not is_in_frames(flat, node):
            for state in states:
                users[state].append(node.name)
        if states and node.op == "Identity":
            state_of[node.name] = next(iter(states))
    return users


def _before(flat: FlatGraph, bit_of: Mapping[str, int], cut: Collection[str]) -> Mapping[str, int]:
    """{op: which of the ops with a bit surely come before it}; before those of `cut` none does."""
    before: dict[str, int] = {}
    for node in flat.graph_def.node:
        found: Any = 0
        for name in node.input if node.op not in cut else ():
            source = parse_input(name).op  # what closes a loop comes later, and has no bits yet
            found |= before.get(source, 0) | bit_of.get(source, 0)
        before[node.name] = found
    return before

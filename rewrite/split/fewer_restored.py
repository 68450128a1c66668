"""A graph that restores one variable of each type and shape: the values of all take gigabytes."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.names import data_inputs, op_of, parse_input
from graphs.tensor_protos import shape_of

Kind = tuple[int, tuple[int, ...]]
"""The type and the shape of a variable."""


@dataclasses.dataclass(frozen=True)
class _Restored:
    """A variable that is restored: the ops that do so, which output it is, and its kind."""

    assign: Any
    identity: Any
    output: int
    kind: Kind


def restore_fewer(graph_def: Any, restore_op: str) -> Mapping[str, Kind]:
    """Takes what restores variables like others out of a graph, in place.

    Args:
      graph_def: the graph.
      restore_op: what its saver runs, a NoOp that waits for all assignments.

    Returns:
      {key in the variables' files: its kind} of what is no longer restored; nothing where the saver
      isn't as TensorFlow's own is, with one RestoreV2 for variables that are resources.
    """
    nodes = {node.name: node for node in graph_def.node}
    users: dict[str, set[str]] = defaultdict(set)
    for node in graph_def.node:
        for name in node.input:
            users[op_of(name)].add(node.name)
    found = [_restored(nodes, users, name, restore_op) for name in nodes[restore_op].input]
    known = [each for each in found if each is not None]
    sources = {op_of(each.identity.input[0]) for each in known}
    if len(known) < len(found) or len(sources) != 1:
        return {}
    restore = nodes[sources.pop()]
    consts = [nodes[op_of(name)] for name in restore.input[1:]]
    if (
        restore.op != "RestoreV2"
        or users[restore.name] != {each.identity.name for each in known}
        or any(node.op != "Const" or users[node.name] != {restore.name} for node in consts)
    ):
        return {}
    return _taken_out(graph_def, nodes[restore_op], restore, consts, known)


def _restored(
    nodes: Mapping[str, Any], users: Mapping[str, set[str]], name: str, restore_op: str
) -> _Restored | None:
    """What an assignment restores that only the saver's op waits for; None of any other op."""
    assign = nodes[op_of(name)]
    if assign.op != "AssignVariableOp" or users[assign.name] != {restore_op}:
        return None
    variable, identity = (nodes[op_of(each)] for each in data_inputs(assign))
    is_known = variable.op == "VarHandleOp" and {"shape", "dtype"} <= variable.attr.keys()
    shape = shape_of(variable.attr["shape"].shape) if is_known else None
    if identity.op != "Identity" or users[identity.name] != {assign.name}:
        return None
    if shape is None or min(shape, default=0) < 0:
        return None
    output = parse_input(identity.input[0]).output
    return _Restored(assign, identity, output, (variable.attr["dtype"].type, shape))


def _taken_out(
    graph_def: Any, done: Any, restore: Any, consts: Sequence[Any], found: Sequence[_Restored]
) -> Mapping[str, Kind]:
    import tensorflow as tf

    keys, slices = (tf.make_ndarray(node.attr["value"].tensor) for node in consts)
    first: dict[Kind, _Restored] = {}
    for each in sorted(found, key=lambda each: each.output):
        first.setdefault(each.kind, each)
    kept = list(first.values())
    left = [each for each in found if first[each.kind] is not each]
    if any(slices[each.output] for each in left):
        return {}
    numbers = [each.output for each in kept]
    types = [restore.attr["dtypes"].list.type[number] for number in numbers]
    del restore.attr["dtypes"].list.type[:]
    restore.attr["dtypes"].list.type.extend(types)
    restore.attr.pop("_output_shapes", None)
    for node, values in zip(consts, (keys, slices), strict=True):
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values[numbers]))
        node.attr.pop("_output_shapes", None)
    for number, each in enumerate(kept):
        each.identity.input[0] = f"{restore.name}:{number}"
    gone = {node.name for each in left for node in (each.assign, each.identity)}
    waits = [name for name in done.input if op_of(name) not in gone]
    del done.input[:]
    done.input.extend(waits)
    staying = type(graph_def)(node=[n for n in graph_def.node if n.name not in gone])
    del graph_def.node[:]
    graph_def.node.extend(staying.node)
    return {keys[each.output].decode(): each.kind for each in left}

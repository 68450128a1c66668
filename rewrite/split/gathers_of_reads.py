"""Gathers of a variable's rows that read a copy of it instead, where several hosts have one anyway.

ResourceGather has to lie with its variable: all shards' rows come from one device, through one
network card. Where the same table is multiplied by all shards, as one is that embeds words and
predicts them, each host is sent the whole of it in any case, and its shards' rows can come from
that. Nor is it worth the while to gather a table elsewhere that fits a message.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from typing import Any

from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input
from rewrite.split.repeat import MOST_BYTES

_GATHER, _READ = "ResourceGather", "ReadVariableOp"
_PRODUCTS = frozenset("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum".split())
_ONLY_READ = frozenset({_GATHER, _READ, "ResourceGatherNd", "VariableShape"})


def gathers_of_reads(flat: FlatGraph) -> FlatGraph:
    """The step in which gathers read the whole table first, each with a read of its own.

    Changed are those that wait for nothing, of variables that the step never writes, or that all
    their writes come after: a read sees then what the gather does. merge_reads makes reads one.

    Args:
      flat: the step with its calls opened.

    Returns:
      The step; the same object where there is nothing to change.
    """
    changed = _changed(flat)
    if not changed:
        return flat
    graph_def = type(flat.graph_def)(
        versions=flat.graph_def.versions, library=flat.graph_def.library
    )
    origins = []
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        new = _of_read(node, set(flat.nodes)) if node.name in changed else [node]
        graph_def.node.extend(new)
        origins += [origin] * len(new)
    return dataclasses.replace(flat, graph_def=graph_def, origins=origins)


def _changed(flat: FlatGraph) -> set[str]:
    """The gathers that are to read a copy."""
    users: dict[str, list[Any]] = defaultdict(list)
    for node in flat.graph_def.node:
        for name in data_inputs(node):
            users[op_of(name)].append(node)
    special = {*flat.unit_of_node, *flat.share_of_node, *flat.after_of_node}
    special.update(name for names in flat.after_of_node.values() for name in names)
    found: set[str] = set()
    for handle in flat.graph_def.node:
        if handle.op != "VarHandleOp":
            continue
        using = users[handle.name]
        gathers = [node for node in using if _may_read(node) and node.name not in special]
        writers = {node.name for node in using if node.op not in _ONLY_READ}
        read = [user for node in using if node.op == _READ for user in users[node.name]]
        is_sent = any(node.op in _PRODUCTS for node in read) or _is_small(handle)
        names = {node.name for node in gathers}
        if names and is_sent and _come_after(flat, names, writers):
            found |= names
    return found


def _may_read(node: Any) -> bool:
    return node.op == _GATHER and len(node.input) == 2 and not node.attr["batch_dims"].i


def _is_small(handle: Any) -> bool:
    import tensorflow as tf

    shape = [dim.size for dim in handle.attr["shape"].shape.dim]
    is_known = not handle.attr["shape"].shape.unknown_rank and min(shape, default=0) >= 0
    size = tf.as_dtype(handle.attr["dtype"].type).size
    return is_known and math.prod(shape) * size <= MOST_BYTES


def _come_after(flat: FlatGraph, first: set[str], last: set[str]) -> bool:
    """Whether each of the last ops surely runs after all of the first."""
    bit_of = {name: 1 << i for i, name in enumerate(sorted(first))}
    before: dict[str, int] = {}
    if not last:
        return True
    for node in flat.graph_def.node:
        found = 0
        for name in node.input:
            source = parse_input(name).op
            found |= before.get(source, 0) | bit_of.get(source, 0)
        before[node.name] = found
    return all(before[name] == (1 << len(first)) - 1 for name in last)


def _of_read(node: Any, taken: set[str]) -> list[Any]:
    """A read, an axis and a gather in place of one gather of a variable."""
    import numpy as np
    import tensorflow as tf

    def made(op: str, name: str, inputs: list[str]) -> Any:
        while name in taken:
            name += "_"
        return type(node)(op=op, name=name, device=node.device, input=inputs)

    read = made(_READ, f"{node.name}/table", [node.input[0]])
    read.attr["dtype"].CopyFrom(node.attr["dtype"])
    axis = made("Const", f"{node.name}/axis", [])
    axis.attr["dtype"].type = tf.int32.as_datatype_enum
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(0, np.int32)))
    gather = type(node)(op="GatherV2", name=node.name, device=node.device)
    gather.input.extend([read.name, node.input[1], axis.name])
    gather.attr["Tparams"].CopyFrom(node.attr["dtype"])
    gather.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    gather.attr["Taxis"].type = tf.int32.as_datatype_enum
    gather.attr["batch_dims"].i = 0
    return [read, axis, gather]

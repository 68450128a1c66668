"""Gathers of a variable's rows that read a copy of it instead, where several hosts have one anyway.

ResourceGather has to lie with its variable: all shards' rows come from one device, through one
network card. Where the same table is multiplied by all shards, as one is that embeds words and
predicts them, each host is sent the whole of it in any case, and its shards' rows can come from
that. Nor is it worth the while to gather a table elsewhere that fits a message.
"""

from __future__ import annotations

import math
from typing import Any

from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, free_name, op_of
from rewrite.split.merge_reads import (
    Variable,
    uses_of_variables,
    variable_of_handle,
    with_nodes,
    written_after,
)
from rewrite.split.op_view import attr_of
from rewrite.split.repeat import MOST_BYTES

_GATHER, _READ = "ResourceGather", "ReadVariableOp"
_PRODUCTS = frozenset("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum".split())


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
    taken = set(flat.nodes)
    rows = []
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        new = _of_read(node, taken) if node.name in changed else [node]
        rows += [(each, origin) for each in new]
    return with_nodes(flat, rows)


def _changed(flat: FlatGraph) -> set[str]:
    """The gathers that are to read a copy."""
    gathers, writers = uses_of_variables(flat, _may_read)
    if not gathers:
        return set()
    is_sent = _small(flat) | _multiplied(flat)
    wanted = {variable: names for variable, names in gathers.items() if variable in is_sent}
    found = written_after(flat, wanted, writers)
    return {name for names in found.values() for name in names}


def _may_read(node: Any) -> bool:
    return node.op == _GATHER and len(node.input) == 2 and not attr_of(node, "batch_dims").i


def _multiplied(flat: FlatGraph) -> set[Variable]:
    """The variables whose value a product takes."""
    reads, _ = uses_of_variables(flat, lambda node: node.op == _READ)
    products = [node for node in flat.graph_def.node if node.op in _PRODUCTS]
    factors = {op_of(name) for node in products for name in data_inputs(node)}
    return {variable for variable, names in reads.items() if not factors.isdisjoint(names)}


def _small(flat: FlatGraph) -> set[Variable]:
    """The variables that fit a message."""
    handles = [node for node in flat.graph_def.node if node.op == "VarHandleOp"]
    return {variable_of_handle(node) for node in handles if _is_small(node)}


def _is_small(handle: Any) -> bool:
    import tensorflow as tf

    shape = [dim.size for dim in handle.attr["shape"].shape.dim]
    is_known = not handle.attr["shape"].shape.unknown_rank and min(shape, default=0) >= 0
    size = tf.as_dtype(handle.attr["dtype"].type).size
    return is_known and math.prod(shape) * size <= MOST_BYTES


def _of_read(node: Any, taken: set[str]) -> list[Any]:
    """A read, an axis and a gather in place of one gather of a variable."""
    import numpy as np
    import tensorflow as tf

    def made(op: str, name: str, inputs: list[str]) -> Any:
        return type(node)(op=op, name=free_name(name, taken), device=node.device, input=inputs)

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

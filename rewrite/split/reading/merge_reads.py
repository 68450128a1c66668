"""Reads a variable once where all who read it see the same value.

Optimizers read the step's number and the learning rate anew for each variable that they update. A
read is stateful, so TensorFlow merges none of them, and each one is a message of its own to every
device that it is used on. Reads that no write can come before are one and the same.
"""

import copy
import math
from collections.abc import Collection, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs.building.known_tensors import constant_node
from graphs.building.op_outputs import attr_of
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, free_name, op_of, parse_input, rename_beside
from graphs.protos import NodeDef
from rewrite.split.decision import MOST_BYTES
from rewrite.split.effects import _READ, Variable, uses_of_variables, variable_of_handle
from rewrite.split.reading.runs_before import bits, runs_before, with_nodes


def merge_reads(flat: FlatGraph) -> FlatGraph:
    """The step without the reads that read what an earlier one does.

    Merged are reads that wait for nothing, of variables that the step never writes, or that all
    their writes come after. The same object comes back where there is nothing to merge.
    """
    reads, writers = uses_of_variables(flat, lambda node: node.op == _READ and len(node.input) == 1)
    several = {variable: names for variable, names in reads.items() if len(names) > 1}
    # {read that is left out: the read that takes its place}
    kept_for: dict[str, str] = {}
    for first, *others in _written_after(flat, several, writers).values():
        kept_for.update(dict.fromkeys(others, first))
    if not kept_for:
        return flat

    def nodes_for(node: NodeDef) -> Sequence[NodeDef]:
        if node.name in kept_for:
            return []
        new = copy.deepcopy(node)
        inputs = [_renamed(name, kept_for) for name in node.input]
        data = [name for name in inputs if not name.startswith("^")]
        new.input[:] = [*data, *dict.fromkeys(name for name in inputs if name.startswith("^"))]
        rename_beside(new, kept_for)
        return [new]

    return with_nodes(flat, nodes_for)


def _written_after(
    flat: FlatGraph,
    readers: Mapping[Variable, Sequence[str]],
    writers: Mapping[Variable, Collection[str]],
) -> dict[Variable, Sequence[str]]:
    """The readers of the variables that are never written, or only after all of these readers."""
    if not readers:
        return {}
    bit_of = bits(name for names in readers.values() for name in names)
    before = runs_before(flat.graph_def, bit_of)
    found = {}
    for variable, names in readers.items():
        mask = sum(bit_of[name] for name in names)
        if all(before[writer] & mask == mask for writer in writers.get(variable, ())):
            found[variable] = names
    return found


def _renamed(name: str, kept_for: Mapping[str, str]) -> str:
    """An input that reads what is kept; a read has one output."""
    source = parse_input(name).op
    if source not in kept_for:
        return name
    return f"^{kept_for[source]}" if name.startswith("^") else kept_for[source]


# Gathers of a variable's rows that read a copy of it instead, where several hosts have one anyway.
#
# ResourceGather has to lie with its variable: all shards' rows come from one device, through one
# network card. Where the same table is multiplied by all shards, as one is that embeds words and
# predicts them, each host is sent the whole of it in any case, and its shards' rows can come from
# that. Nor is it worth the while to gather a table elsewhere that fits a message.

_GATHER = "ResourceGather"
_PRODUCTS = frozenset("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum".split())


def gathers_of_reads(flat: FlatGraph) -> FlatGraph:
    """The step in which gathers read the whole table first, each with a read of its own.

    Changed are those that wait for nothing, of variables that the step never writes, or that all
    their writes come after: a read sees then what the gather does. merge_reads makes reads one.
    The same object comes back where there is nothing to change.
    """
    changed = _changed(flat)
    if not changed:
        return flat
    taken = set(flat.nodes)
    return with_nodes(flat, lambda node: _of_read(node, taken) if node.name in changed else [node])


def _changed(flat: FlatGraph) -> set[str]:
    """The gathers that are to read a copy."""
    gathers, writers = uses_of_variables(
        flat, lambda n: n.op == _GATHER and len(n.input) == 2 and not attr_of(n, "batch_dims").i
    )
    if not gathers:
        return set()
    is_sent = _small(flat) | _multiplied(flat)
    wanted = {variable: names for variable, names in gathers.items() if variable in is_sent}
    return {name for names in _written_after(flat, wanted, writers).values() for name in names}


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


def _is_small(handle: NodeDef) -> bool:
    shape = [dim.size for dim in handle.attr["shape"].shape.dim]
    is_known = not handle.attr["shape"].shape.unknown_rank and min(shape, default=0) >= 0
    size = tf.as_dtype(handle.attr["dtype"].type).size
    return is_known and math.prod(shape) * size <= MOST_BYTES


def _of_read(node: NodeDef, taken: set[str]) -> list[NodeDef]:
    """A read, an axis and a gather in place of one gather of a variable."""
    import numpy as np

    def made(op: str, name: str, inputs: list[str]) -> NodeDef:
        return type(node)(op=op, name=free_name(name, taken), device=node.device, input=inputs)

    read = made(_READ, f"{node.name}/table", [node.input[0]])
    read.attr["dtype"].CopyFrom(node.attr["dtype"])
    axis = constant_node(free_name(f"{node.name}/axis", taken), np.array(0, np.int32))
    axis.device = node.device
    gather = type(node)(op="GatherV2", name=node.name, device=node.device)
    gather.input.extend([read.name, node.input[1], axis.name])
    gather.attr["Tparams"].CopyFrom(node.attr["dtype"])
    gather.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    gather.attr["Taxis"].type = tf.int32.as_datatype_enum
    gather.attr["batch_dims"].i = 0
    return [read, axis, gather]

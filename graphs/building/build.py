"""Makes the arrays of an op graph from a flat graph."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.colocation import colocation_pairs, joined_groups
from graphs.building.constant_values import handing_on
from graphs.building.node_outputs import NodeOutputs, outputs_of
from graphs.building.shapes import TensorProperties, possible_bytes
from graphs.building.shared_buffers import SharedOutputs, shared_outputs
from graphs.building.unseen_memory import copied_variables, fill_lists, workspace_bytes
from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import reached_functions
from graphs.graph_edges import GraphEdges, edges_between
from graphs.op_graph import SHAPE_DIMS, BoolArray, IntArray, LongArray, OpGraph
from graphs.protos import NodeDef

_AFTER_ALL_OUTPUTS = 1 << 30  # sorts an op's control tensor behind its outputs


@dataclasses.dataclass(frozen=True)
class BuiltGraph:
    """An op graph, and which of its ops each flat node is in.

    Attributes:
      graph: the arrays.
      op_of_node: i4[nodes].
      sums_bytes: i8[N] the part of op_temp_bytes that hangs on no kernel: terms of joined sums.
    """

    graph: OpGraph
    op_of_node: IntArray
    sums_bytes: LongArray


def build_op_graph(flat: FlatGraph, properties: TensorProperties) -> BuiltGraph:
    """Makes the op graph of a flat graph; the nodes of a unit become one op.

    Of n branches of a conditional each one's tensors count as 1 / n of their bytes where they move
    to other devices, because only the branch that runs sends any. What its ops allocate counts in
    full.
    """
    nodes = flat.graph_def.node
    after = {name: [f"^{op}" for op in before] for name, before in flat.after_of_node.items()}
    waits = [
        [*node.input, *after[node.name]] if node.name in after else node.input for node in nodes
    ]
    edges = edges_between([node.name for node in nodes], waits)
    op_of_node = _ops(flat, nodes, edges)
    num_ops = int(op_of_node.max()) + 1 if len(op_of_node) else 0
    names, types = _names_and_types(flat, nodes, op_of_node, num_ops)
    outputs = outputs_of(nodes, properties)
    tensors = _tensors(outputs, op_of_node, edges)
    hands_on = handing_on(flat, properties)
    persistent, temporary, alias = _held_bytes(nodes, properties, op_of_node, num_ops, hands_on)
    callers = [*(feed.tensor for feed in flat.feeds), *flat.fetches]
    of_outputs = shared_outputs(nodes, edges, outputs, callers, hands_on)
    sums = np.zeros(num_ops, dtype=np.int64)
    np.maximum.at(sums, op_of_node[outputs.node], of_outputs.at_last)
    in_lists = fill_lists(flat, properties, outputs, of_outputs.shares)
    shared = _shared(tensors, of_outputs, op_of_node)
    alloc = np.where(alias[tensors.node], 0, tensors.num_bytes * shared.buffers)
    leaves = tensors.row_of_output >= 0
    alloc[tensors.row_of_output[leaves]] += in_lists[leaves]
    share = np.array([flat.share_of_node.get(node.name, 1.0) for node in nodes])
    moved = np.ceil(tensors.num_bytes * share[tensors.node]).astype(np.int64)
    pairs = [*colocation_pairs(nodes, edges, outputs), *_same_node_pairs(flat.origins)]
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    use_tensor, use_op = _distinct_uses(tensors, op_of_node, edges)
    graph = OpGraph(
        op_names=names,
        op_types=types,
        tensor_producer=op_of_node[tensors.node],
        tensor_output=tensors.output,
        tensor_bytes=moved,
        tensor_alloc_bytes=alloc,
        tensor_shares=shared.shares.astype(np.int32),
        tensor_takes_over=shared.takes_over,
        tensor_shape=tensors.shape,
        use_tensor=use_tensor,
        use_op=use_op,
        op_persistent_bytes=persistent,
        op_temp_bytes=np.maximum(temporary, sums),
        colocation_group=joined_groups(num_ops, op_of_node[first], op_of_node[second]),
    )
    return BuiltGraph(graph, op_of_node, sums)


@dataclasses.dataclass(frozen=True)
class _Tensors:
    """The T tensors that leave their op, sorted by op, node and output.

    An op's control tensor comes after its other tensors.
    """

    node: LongArray  # i8[T] index of the node that makes it
    output: IntArray  # i4[T] which of its outputs; -1 for control
    num_bytes: LongArray  # i8[T]
    shape: IntArray  # i4[T, 4] as OpGraph.tensor_shape
    first_output: LongArray
    row_of_output: LongArray  # i8[outputs of all nodes] index of the tensor that an output is
    control_row: LongArray  # i8[N] index of each op's control tensor


def _ops(flat: FlatGraph, nodes: Sequence[NodeDef], edges: GraphEdges) -> IntArray:
    """i4[nodes]: the op of each node in topological order; a unit, and cycles with it, are one."""
    count = len(nodes)
    label = np.arange(count)
    if flat.unit_of_node:
        head: dict[str, int] = {}
        for i, node in enumerate(nodes):
            unit = flat.unit_of_node.get(node.name)
            if unit is not None:
                label[i] = head.setdefault(unit, i)
        matrix = coo_matrix(
            (np.ones(len(edges.producer)), (label[edges.producer], label[edges.consumer])),
            shape=(count, count),
        )
        _, component = connected_components(matrix, directed=True, connection="strong")
        label = component[label]
        # SciPy's numbers of components are in no topological order.
        is_contracted = len(np.unique(label)) < count
        label = _topological_labels(label, edges) if is_contracted else np.arange(count)
    _, inverse = np.unique(label, return_inverse=True)
    return inverse.astype(np.int32)


def _topological_labels(label: np.ndarray, edges: GraphEdges) -> np.ndarray:
    """Renames labels so that ascending labels are a topological order of the contracted graph."""
    size = int(label.max()) + 1
    source, target = label[edges.producer], label[edges.consumer]
    pairs = np.unique(np.stack([source, target], 1)[source != target], axis=0)
    waiting = np.bincount(pairs[:, 1], minlength=size)
    start = np.searchsorted(pairs[:, 0], np.arange(size + 1))
    present, position = np.unique(label, return_index=True)
    ready = [int(x) for x in present[np.argsort(position)] if waiting[x] == 0]
    rank = np.zeros(size, dtype=np.int64)
    for done, current in enumerate(ready):
        rank[current] = done
        for user in pairs[start[current] : start[current + 1], 1]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(int(user))
    return rank[label]


def _names_and_types(
    flat: FlatGraph, nodes: Sequence[NodeDef], op_of_node: IntArray, num_ops: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names, types = [""] * num_ops, [""] * num_ops
    for op, node in zip(op_of_node.tolist(), nodes, strict=True):
        unit = flat.unit_of_node.get(node.name)
        if unit is None:
            names[op], types[op] = node.name, node.op
        elif not names[op]:
            names[op] = unit
            types[op] = node.op if unit == node.name else "While"
    return tuple(names), tuple(types)


def _tensors(outputs: NodeOutputs, op_of_node: IntArray, edges: GraphEdges) -> _Tensors:
    num_ops, leaves = len(np.bincount(op_of_node)), _leaves_op(op_of_node, edges)
    is_control, producer = edges.output < 0, edges.producer
    node, output = outputs.node, outputs.output
    is_kept = (np.bincount(op_of_node) == 1)[op_of_node][node]
    used = leaves & ~is_control
    is_kept[outputs.first[producer[used]] + edges.output[used]] = True
    kept = np.flatnonzero(is_kept)
    waited_for = np.unique(producer[leaves & is_control])
    ops, first = np.unique(op_of_node[waited_for], return_index=True)
    control = waited_for[first]
    nodes = np.concatenate([node[kept], control])
    behind = np.concatenate([output[kept], np.full(len(control), _AFTER_ALL_OUTPUTS)])
    order = np.lexsort((behind, nodes, op_of_node[nodes]))
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.arange(len(order))
    row_of_output = np.full(len(node), -1, dtype=np.int64)
    row_of_output[kept] = row[: len(kept)]
    control_row = np.full(num_ops, -1, dtype=np.int64)
    control_row[ops] = row[len(kept) :]
    is_data = order < len(kept)
    num_bytes = np.zeros(len(order), dtype=np.int64)
    num_bytes[is_data] = outputs.num_bytes[kept[order[is_data]]]
    shape = np.full((len(order), SHAPE_DIMS), -1, dtype=np.int32)
    shape[is_data] = outputs.shape[kept[order[is_data]]]
    return _Tensors(
        nodes[order],
        np.where(is_data, behind[order], -1).astype(np.int32),
        num_bytes,
        shape,
        outputs.first,
        row_of_output,
        control_row,
    )


def _shared(tensors: _Tensors, shared: SharedOutputs, op_of_node: IntArray) -> SharedOutputs:
    """What outputs share, of the tensors; what a unit makes is its own."""
    is_alone = (np.bincount(op_of_node) == 1)[op_of_node[tensors.node]]
    known = np.flatnonzero(is_alone & (tensors.output >= 0))
    output = tensors.first_output[tensors.node[known]] + tensors.output[known]
    source = shared.shares[output]
    shares, buffers = np.full(len(tensors.node), -1), np.ones(len(tensors.node), dtype=np.int64)
    shares[known] = np.where(source < 0, -1, tensors.row_of_output[source])
    buffers[known] = shared.buffers[output]
    takes_over = np.zeros(len(tensors.node), dtype=bool)
    takes_over[known] = shared.takes_over[output]
    return shared._replace(shares=shares, takes_over=takes_over, buffers=buffers)


def _leaves_op(op_of_node: IntArray, edges: GraphEdges) -> BoolArray:
    """bool[E]: whether an edge leads to another op."""
    return op_of_node[edges.producer] != op_of_node[edges.consumer]


def _distinct_uses(
    tensors: _Tensors, op_of_node: IntArray, edges: GraphEdges
) -> tuple[IntArray, IntArray]:
    """Tensor i4[U] and op i4[U] of each use; a control edge beside a tensor edge is left out."""
    num_ops = len(tensors.control_row)
    leaves, is_control = _leaves_op(op_of_node, edges), edges.output < 0
    source, user = op_of_node[edges.producer].astype(np.int64), op_of_node[edges.consumer]
    linked = source * num_ops + user
    data = np.flatnonzero(leaves & ~is_control)
    waits = np.flatnonzero(leaves & is_control)
    waits = waits[~np.isin(linked[waits], linked[data])]
    output = tensors.first_output[edges.producer[data]] + edges.output[data]
    tensor = np.concatenate([tensors.row_of_output[output], tensors.control_row[source[waits]]])
    uses = np.unique(tensor * num_ops + np.concatenate([user[data], user[waits]]))
    use_tensor, use_op = np.divmod(uses, max(num_ops, 1))
    return use_tensor.astype(np.int32), use_op.astype(np.int32)


def _held_bytes(
    nodes: Sequence[NodeDef],
    properties: TensorProperties,
    op_of_node: IntArray,
    num_ops: int,
    hands_on: BoolArray,
) -> tuple[LongArray, LongArray, BoolArray]:
    """i8[N] bytes held for the whole step, i8[N] while the op runs; and which nodes only hand on.

    Variables count at their declared shape, constants at the size of their value: TensorFlow
    keeps a constant's tensor in its kernel for as long as the session lives. What runs in a unit
    runs one after the other.
    """
    persistent, temporary = np.zeros((2, num_ops), dtype=np.int64)
    types = [node.op for node in nodes]
    copying, updates = copied_variables(nodes)
    declared: dict[str, int] = {}
    for number, (op_type, node) in enumerate(zip(types, nodes, strict=True)):
        op = op_of_node[number]
        temporary[op] = max(temporary[op], workspace_bytes(node, properties))
        if op_type in op_types.VARIABLES_AND_TEMPORARY:
            count = tf.TensorShape(node.attr["shape"].shape).num_elements()
            width = max(tf.as_dtype(node.attr["dtype"].type).size, 1)
            declared[node.name] = 0 if count is None else possible_bytes(count * width, node)
            persistent[op] += declared[node.name]
        elif op_type == "Const":
            persistent[op] += sum(properties.bytes_of.get(node.name, ()))
    for number, variable in updates.items():
        op = op_of_node[number]
        temporary[op] = max(temporary[op], declared.get(variable, 0))
    is_alone = (np.bincount(op_of_node) == 1)[op_of_node].tolist()
    held = op_types.VARIABLES_AND_TEMPORARY | {"Const"}
    alias = [
        op_type in held
        or (alone and (hands_on[number] or op_type in op_types.ALIASES) and number not in copying)
        for number, (op_type, alone) in enumerate(zip(types, is_alone, strict=True))
    ]
    return persistent, temporary, np.array(alias, dtype=bool)


def _same_node_pairs(origins: Sequence[Origin]) -> Iterator[tuple[int, int]]:
    """Pairs of nodes that are one NodeDef, as in a function that one body calls twice."""
    first: dict[Origin, int] = {}
    for i, origin in enumerate(origins):
        if origin.node and first.setdefault(origin, i) != i:
            yield first[origin], i


def origin_devices(
    flat: FlatGraph, built: BuiltGraph, device_of_op: IntArray, device_names: Sequence[str]
) -> Mapping[Origin, str]:
    """{Origin: device string} of every node that is in the model, those inside units too."""
    devices = [device_names[d] for d in device_of_op[built.op_of_node].tolist()]
    own = {o: device for o, device in zip(flat.origins, devices, strict=True) if o.node}
    return {**devices_inside_units(flat, devices), **own}


# Gives the ops inside loops and conditionals the device of their loop or conditional.
#
# That is where TensorFlow puts an op of a body that has no device string. With the string written
# out, a person and `tfplace check` can see it.
def devices_inside_units(flat: FlatGraph, device_of_node: Sequence[str]) -> dict[Origin, str]:
    """{op of a body: its unit's device}, for functional loops and conditionals.

    The ops of a function are left out where something else runs it, too: a call, a compiled
    function (which XLA places), or a unit on another device. TensorFlow puts such ops on the
    device of whichever op runs them.
    """
    devices_of: dict[str, set[str]] = {}
    for node, device in zip(flat.graph_def.node, device_of_node, strict=True):
        is_opened_inside = node.op in op_types.LOOPS | op_types.CONDITIONALS
        for name in reached_functions([node], flat.library):
            devices_of.setdefault(name, set()).add(device if is_opened_inside else "")
    for origin in flat.origins:
        if origin.function in devices_of:
            devices_of[origin.function].add("")
    device_of_inner_op = {}
    for name, devices in devices_of.items():
        (device, *others) = devices
        if device and not others:
            for node in flat.library[name].node_def:
                device_of_inner_op[Origin(name, node.name)] = device
    return device_of_inner_op

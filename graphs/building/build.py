"""Makes the arrays of an op graph from a flat graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphs import op_types
from graphs.building.colocation import colocation_pairs, joined_groups
from graphs.building.shapes import TensorProperties, possible_bytes
from graphs.building.unit_devices import devices_inside_units
from graphs.flat_graph import FlatGraph, Origin
from graphs.op_graph import SHAPE_DIMS, IntArray, OpGraph

_AFTER_ALL_OUTPUTS = 1 << 30  # sorts an op's control tensor behind its outputs
_MAX_DIM = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class BuiltGraph:
    """An op graph, and which of its ops each flat node is in.

    Attributes:
      graph: the arrays.
      op_of_node: i4[nodes].
    """

    graph: OpGraph
    op_of_node: IntArray


def build_op_graph(flat: FlatGraph, properties: TensorProperties) -> BuiltGraph:
    """Makes the op graph of a flat graph; the nodes of a unit become one op.

    Of n branches of a conditional each one's tensors count as 1 / n of their bytes where they move
    to other devices, because only the branch that runs sends any. What its ops allocate counts in
    full.

    Args:
      flat: topologically ordered single ops.
      properties: dtypes, shapes and bytes of all outputs.
    """
    nodes = flat.graph_def.node
    edges = _edges(nodes, flat.after_of_node)
    op_of_node = _ops(flat, nodes, edges)
    num_ops = int(op_of_node.max()) + 1 if len(op_of_node) else 0
    names, types = _names_and_types(flat, nodes, op_of_node, num_ops)
    tensors = _tensors(nodes, properties, op_of_node, edges)
    persistent, alias = _persistent_bytes(nodes, properties, op_of_node, num_ops)
    alloc = np.where(alias[tensors.node], 0, tensors.num_bytes)
    share = np.array([flat.share_of_node.get(node.name, 1.0) for node in nodes])
    moved = np.ceil(tensors.num_bytes * share[tensors.node]).astype(np.int64)
    index = {node.name: i for i, node in enumerate(nodes)}
    pairs = [
        (index[a], index[b])
        for a, b in colocation_pairs(nodes, properties.dtype_of)
        if a in index and b in index
    ]
    pairs += _same_node_pairs(flat.origins)
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    use_tensor, use_op = _distinct_uses(tensors, op_of_node, edges)
    graph = OpGraph(
        op_names=names,
        op_types=types,
        tensor_producer=op_of_node[tensors.node],
        tensor_output=tensors.output,
        tensor_bytes=moved,
        tensor_alloc_bytes=alloc,
        tensor_shape=tensors.shape,
        use_tensor=use_tensor,
        use_op=use_op,
        op_persistent_bytes=persistent,
        op_temp_bytes=np.zeros(num_ops, dtype=np.int64),
        colocation_group=joined_groups(num_ops, op_of_node[first], op_of_node[second]),
    )
    return BuiltGraph(graph, op_of_node)


@dataclasses.dataclass(frozen=True)
class _Edges:
    """Edges between nodes.

    Attributes:
      producer: i8[E] index of the node that makes the tensor.
      output: i8[E] which of its outputs; -1 for a control edge.
      consumer: i8[E] index of the node that uses it.
    """

    producer: np.ndarray
    output: np.ndarray
    consumer: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Tensors:
    """The T tensors that leave their op, sorted by op, node and output.

    An op's control tensor comes after its other tensors.

    Attributes:
      node: i8[T] index of the node that makes it.
      output: i4[T] which of its outputs; -1 for control.
      num_bytes: i8[T].
      shape: i4[T, 4] as OpGraph.tensor_shape.
      row_of: {(node, output): index of the tensor}; (op, -1) for the op's control tensor.
    """

    node: np.ndarray
    output: IntArray
    num_bytes: np.ndarray
    shape: IntArray
    row_of: dict[tuple[int, int], int]


def _edges(nodes: Sequence[Any], after_of_node: Mapping[str, Sequence[str]]) -> _Edges:
    index = {node.name: i for i, node in enumerate(nodes)}
    producer, output, consumer = [], [], []
    for i, node in enumerate(nodes):
        for source in (*node.input, *(f"^{name}" for name in after_of_node.get(node.name, ()))):
            if source.startswith("^"):
                name, position = source[1:], -1
            else:
                name, _, text = source.partition(":")
                position = int(text or 0)
            producer.append(index[name])
            output.append(position)
            consumer.append(i)
    return _Edges(*(np.array(x, dtype=np.int64) for x in (producer, output, consumer)))


def _ops(flat: FlatGraph, nodes: Sequence[Any], edges: _Edges) -> IntArray:
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


def _topological_labels(label: np.ndarray, edges: _Edges) -> np.ndarray:
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
    flat: FlatGraph, nodes: Sequence[Any], op_of_node: IntArray, num_ops: int
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


def _tensors(
    nodes: Sequence[Any], properties: TensorProperties, op_of_node: IntArray, edges: _Edges
) -> _Tensors:
    leaves = op_of_node[edges.producer] != op_of_node[edges.consumer]
    used = set(zip(edges.producer[leaves].tolist(), edges.output[leaves].tolist(), strict=True))
    is_single = (np.bincount(op_of_node) == 1)[op_of_node].tolist()
    ops = op_of_node.tolist()
    rows: list[tuple[int, int, int, int]] = []
    control_node_of_op: dict[int, int] = {}
    for i, node in enumerate(nodes):
        for output, num_bytes in enumerate(properties.bytes_of.get(node.name, ())):
            if is_single[i] or (i, output) in used:
                rows.append((ops[i], i, output, num_bytes))
        if (i, -1) in used:
            control_node_of_op.setdefault(ops[i], i)
    rows += [(op, i, _AFTER_ALL_OUTPUTS, 0) for op, i in control_node_of_op.items()]
    rows.sort()
    row_of_tensor: dict[tuple[int, int], int] = {}
    shapes = np.full((len(rows), SHAPE_DIMS), -1, dtype=np.int32)
    for row, (op, i, output, _) in enumerate(rows):
        if output == _AFTER_ALL_OUTPUTS:
            row_of_tensor[op, -1] = row
            continue
        row_of_tensor[i, output] = row
        dims = properties.shape_of[nodes[i].name][output]
        if dims is not None:
            kept = [min(size, _MAX_DIM) for size in dims[:SHAPE_DIMS]]
            shapes[row, : len(kept)] = kept
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    output_index = np.where(table[:, 2] == _AFTER_ALL_OUTPUTS, -1, table[:, 2])
    return _Tensors(table[:, 1], output_index.astype(np.int32), table[:, 3], shapes, row_of_tensor)


def _distinct_uses(
    tensors: _Tensors, op_of_node: IntArray, edges: _Edges
) -> tuple[IntArray, IntArray]:
    """Tensor i4[U] and op i4[U] of each use; a control edge beside a tensor edge is left out."""
    uses: set[tuple[int, int]] = set()
    linked: set[tuple[int, int]] = set()
    triples = list(
        zip(edges.producer.tolist(), edges.output.tolist(), edges.consumer.tolist(), strict=True)
    )
    ops = op_of_node.tolist()
    for producer, output, consumer in triples:
        if output >= 0 and ops[producer] != ops[consumer]:
            uses.add((tensors.row_of[producer, output], ops[consumer]))
            linked.add((ops[producer], ops[consumer]))
    for producer, output, consumer in triples:
        pair = (ops[producer], ops[consumer])
        if output < 0 and pair[0] != pair[1] and pair not in linked:
            uses.add((tensors.row_of[ops[producer], -1], ops[consumer]))
    ordered = np.array(sorted(uses), dtype=np.int32).reshape(-1, 2)
    return np.ascontiguousarray(ordered[:, 0]), np.ascontiguousarray(ordered[:, 1])


def _persistent_bytes(
    nodes: Sequence[Any], properties: TensorProperties, op_of_node: IntArray, num_ops: int
) -> tuple[np.ndarray, np.ndarray]:
    """i8[N] bytes held for the whole step; bool[nodes] whether the outputs are no new allocation.

    Variables count at their declared shape, constants at the size of their value: TensorFlow
    keeps a constant's tensor in its kernel for as long as the session lives.
    """
    persistent = np.zeros(num_ops, dtype=np.int64)
    for op, node in zip(op_of_node, nodes, strict=True):
        if node.op in op_types.VARIABLES_AND_TEMPORARY:
            persistent[op] += _declared_bytes(node)
        elif node.op == "Const":
            persistent[op] += sum(properties.bytes_of.get(node.name, ()))
    aliases = op_types.ALIASES | op_types.VARIABLES_AND_TEMPORARY | {"Const"}
    return persistent, np.array([node.op in aliases for node in nodes], dtype=bool)


def _same_node_pairs(origins: Sequence[Origin]) -> Iterator[tuple[int, int]]:
    """Pairs of nodes that are one NodeDef, as in a function that one body calls twice."""
    first: dict[Origin, int] = {}
    for i, origin in enumerate(origins):
        if origin.node and first.setdefault(origin, i) != i:
            yield first[origin], i


def _declared_bytes(node: Any) -> int:
    """Bytes of a variable of this shape and dtype; 0 where either is not known."""
    import tensorflow as tf

    shape = tf.TensorShape(node.attr["shape"].shape)
    count = shape.num_elements()
    width = max(tf.as_dtype(node.attr["dtype"].type).size, 1)
    return 0 if count is None else possible_bytes(count * width, node)


def origin_devices(
    flat: FlatGraph, built: BuiltGraph, device_of_op: IntArray, device_names: Sequence[str]
) -> Mapping[Any, str]:
    """{Origin: device string} of every node that is in the model, those inside units too."""
    devices = [device_names[d] for d in device_of_op[built.op_of_node].tolist()]
    own = {
        origin: device for origin, device in zip(flat.origins, devices, strict=True) if origin.node
    }
    return {**devices_inside_units(flat, devices), **own}

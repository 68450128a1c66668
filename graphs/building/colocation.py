"""Finds which ops must share a device, whatever the placement.

An op must lie with another one if it says so (`_class: loc:@other`); if it takes a reference to a
variable of TensorFlow 1 or a resource handle (so a variable's handle, its reads, assigns and
updates belong together); if it makes or takes an Optional (what a conditional's branch keeps for
its gradient), which TensorFlow can't send to another task; or a list of tensors, where the devices
are of several tasks (`with_lists_together`).

TensorFlow moves ops to their variable without a word, whatever their device string says, so a
placement that ignored this would not be what runs. Grappler's GetColocationGroups returns nothing
for resource variables; therefore the groups are derived here.
"""

import functools
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphs.building.node_outputs import NodeOutputs
from graphs.building.op_outputs import known_definition
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.graph_edges import GraphEdges
from graphs.names import beside, data_inputs, op_of
from graphs.op_graph import IntArray
from graphs.protos import NodeDef

_MAKE_OR_TAKE_OPTIONALS = frozenset(
    "Switch _SwitchN Merge OptionalFromValue OptionalNone OptionalGetValue OptionalHasValue".split()
)


def colocation_pairs(
    nodes: Sequence[NodeDef], edges: GraphEdges, outputs: NodeOutputs
) -> list[tuple[int, int]]:
    """Pairs of nodes, by their index, that must share a device.

    Args:
      outputs: theirs; the dtype "resource" marks handles.
    """
    index = {node.name: number for number, node in enumerate(nodes)}
    pairs = []
    for number, node in enumerate(nodes):
        pairs += [(index[other], number) for other in beside(node) if other in index]
    types = [node.op for node in nodes]
    has_optionals = np.array([op_type in _MAKE_OR_TAKE_OPTIONALS for op_type in types], dtype=bool)
    producer, consumer = edges.producer, edges.consumer
    is_data = edges.output >= 0
    dtype = np.full(len(producer), "", dtype=object)
    dtype[is_data] = outputs.dtype[outputs.first[producer[is_data]] + edges.output[is_data]]
    binds = (dtype == "resource") | (
        (dtype == "variant") & (has_optionals[producer] | has_optionals[consumer])
    )
    for number, op_type in enumerate(types):
        for position in _reference_inputs(op_type):
            edge = int(edges.first[number]) + position
            if edge < edges.first[number + 1] and is_data[edge]:
                binds[edge] = True
    return [*pairs, *zip(producer[binds].tolist(), consumer[binds].tolist(), strict=True)]


@functools.cache
def _reference_inputs(op_type: str) -> frozenset[int]:
    """The positions of the inputs that an op type takes by reference."""
    definition = known_definition(op_type)  # None for a call by name, which takes no reference
    arguments = definition.input_arg if definition is not None else ()
    return frozenset(position for position, each in enumerate(arguments) if each.is_ref)


def with_lists_together(
    flat: FlatGraph, properties: TensorProperties, op_of_node: IntArray, group: IntArray
) -> IntArray:
    """i4[N]: the colocation groups, with all ops joined that hand on a list of tensors.

    For a cluster of several tasks: a step that sends such a list (a "variant", as loops keep what
    their gradients need) from one task to another never ends.

    Args:
      flat: M nodes.
      op_of_node: i4[M].
      group: i4[N] the groups without; -1 for ops in none.
    """
    nodes = flat.graph_def.node
    index = {node.name: number for number, node in enumerate(nodes)}
    pairs = [
        (index[op_of(name)], number)
        for number, node in enumerate(nodes)
        for name in data_inputs(node)
        if properties.dtype(name) == "variant"
    ]
    if not pairs:
        return group
    ends = op_of_node[np.array(pairs, dtype=np.int64)]
    return with_pairs(group, ends[:, 0], ends[:, 1])


def with_pairs(group: IntArray, first: IntArray, second: IntArray) -> IntArray:
    """i4[N]: the groups i4[N] with pairs of ops joined besides, as `joined_groups` has them."""
    members = np.flatnonzero(group >= 0)
    heads = np.full(int(group.max(initial=-1)) + 1, len(group), dtype=np.int64)
    np.minimum.at(heads, group[members], members)
    return joined_groups(
        len(group),
        np.concatenate([members, first]).astype(np.int32),
        np.concatenate([heads[group[members]], second]).astype(np.int32),
    )


def joined_groups(num_ops: int, first: IntArray, second: IntArray) -> IntArray:
    """i4[N]: the groups that pairs of ops make together, -1 for ops in no pair with another op.

    Groups are numbered 0, 1, ... in the order of their first members.

    Args:
      num_ops: N.
      first: i4[P] one op of each pair.
      second: i4[P] the other.
    """
    ones = np.ones(len(first), dtype=np.int8)
    matrix = coo_matrix((ones, (first, second)), shape=(num_ops, num_ops))
    _, label = connected_components(matrix, directed=False)
    return numbered_groups(label)


def numbered_groups(label: np.ndarray) -> IntArray:
    """i4[N]: equal labels as groups in the order of their first members; -1 for a label of one."""
    _, first, inverse, size = np.unique(
        label, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    shared = order[size[order] > 1]
    number = np.full(len(size), -1, dtype=np.int32)
    number[shared] = np.arange(len(shared), dtype=np.int32)
    return number[inverse]

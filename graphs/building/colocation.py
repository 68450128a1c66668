"""Which ops must share a device, whatever the placement.

Four reasons: the op says so (`_class: loc:@other`), it takes a reference to a TF1 variable, it
takes a resource handle, so a variable's handle, its reads, assigns and optimizer updates belong
together, or it hands on an Optional (what a conditional's branch keeps for its gradient), which
TensorFlow can't send to another task. TensorFlow moves ops to their variable silently, whatever
their device string says; a placement that ignores it would be a fiction. Grappler's
GetColocationGroups returns nothing for resource variables, so the groups are derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphs.op_graph import IntArray

_HANDS_ON_OPTIONALS = frozenset(
    "Switch _SwitchN Merge OptionalFromValue OptionalNone OptionalGetValue OptionalHasValue".split()
)


def colocation_pairs(
    nodes: Sequence[Any], dtype_of: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """Pairs of node names that must share a device.

    Args:
      nodes: NodeDefs of a flat graph.
      dtype_of: {node: dtype of each output}; "resource" marks handles.
    """
    takes_reference = _reference_inputs()
    type_of = {node.name: node.op for node in nodes}
    pairs = []
    for node in nodes:
        for value in node.attr["_class"].list.s if "_class" in node.attr else ():
            pairs.append((value.decode(errors="replace").removeprefix("loc:@"), node.name))
        references = takes_reference(node.op)
        for position, source in enumerate(node.input):
            if source.startswith("^"):
                break
            producer, _, index = source.partition(":")
            dtypes = dtype_of.get(producer, ())
            output = int(index or 0)
            dtype = dtypes[output] if output < len(dtypes) else ""
            ends = {node.op, type_of.get(producer, "")}
            is_optional = dtype == "variant" and not _HANDS_ON_OPTIONALS.isdisjoint(ends)
            if dtype == "resource" or is_optional or position in references:
                pairs.append((producer, node.name))
    return pairs


def _reference_inputs() -> Callable[[str], frozenset[int]]:
    from tensorflow.python.framework import op_def_registry

    known: dict[str, frozenset[int]] = {}

    def of_type(op_type: str) -> frozenset[int]:
        if op_type not in known:
            definition = op_def_registry.get(op_type)  # a call by name takes no reference
            arguments = definition.input_arg if definition is not None else ()
            known[op_type] = frozenset(i for i, a in enumerate(arguments) if a.is_ref)
        return known[op_type]

    return of_type


def joined_groups(num_ops: int, first: IntArray, second: IntArray) -> IntArray:
    """Transitive closure of pairs: i4[N] group numbers 0, 1, ... in order of the first member.

    Args:
      num_ops: N.
      first, second: i4[P] op indices of each pair.

    Returns:
      -1 for ops in no pair with another op.
    """
    ones = np.ones(len(first), dtype=np.int8)
    matrix = coo_matrix((ones, (first, second)), shape=(num_ops, num_ops))
    _, label = connected_components(matrix, directed=False)
    size = np.bincount(label, minlength=num_ops)
    group = np.full(num_ops, -1, dtype=np.int32)
    member = size[label] > 1
    _, first_seen, number = np.unique(label[member], return_index=True, return_inverse=True)
    rank = np.empty(len(first_seen), dtype=np.int32)
    rank[np.argsort(first_seen)] = np.arange(len(first_seen), dtype=np.int32)
    group[member] = rank[number]
    return group

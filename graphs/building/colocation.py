"""Finds which ops must share a device, whatever the placement.

An op must lie with another one for one of four reasons:

- It says so (`_class: loc:@other`).
- It takes a reference to a variable of TensorFlow 1.
- It takes a resource handle. So a variable's handle, its reads, assigns and optimizer updates
  belong together.
- It makes or takes an Optional (what a conditional's branch keeps for its gradient), which
  TensorFlow can't send to another task.

TensorFlow moves ops to their variable without a word, whatever their device string says, so a
placement that ignored this would not be what runs. Grappler's GetColocationGroups returns nothing
for resource variables; therefore the groups are derived here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphs.op_graph import IntArray

_MAKE_OR_TAKE_OPTIONALS = frozenset(
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
    type_of = {node.name: node.op for node in nodes}
    pairs = []
    for node in nodes:
        for value in node.attr["_class"].list.s if "_class" in node.attr else ():
            pairs.append((value.decode(errors="replace").removeprefix("loc:@"), node.name))
        references = _reference_inputs(node.op)
        for position, source in enumerate(node.input):
            if source.startswith("^"):
                break
            producer, _, index = source.partition(":")
            dtypes = dtype_of.get(producer, ())
            output = int(index or 0)
            dtype = dtypes[output] if output < len(dtypes) else ""
            ends = {node.op, type_of.get(producer, "")}
            is_optional = dtype == "variant" and not _MAKE_OR_TAKE_OPTIONALS.isdisjoint(ends)
            if dtype == "resource" or is_optional or position in references:
                pairs.append((producer, node.name))
    return pairs


@functools.cache
def _reference_inputs(op_type: str) -> frozenset[int]:
    """The positions of the inputs that an op type takes by reference."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)  # None for a call by name, which takes no reference
    arguments = definition.input_arg if definition is not None else ()
    return frozenset(position for position, each in enumerate(arguments) if each.is_ref)


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

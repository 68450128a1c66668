"""Says how long the diagonals are of which a split step makes matrices.

TensorFlow doesn't know the shape of what a variable of a SavedModel holds while it loads the graph,
nor any size that a run computes, as a step of any batch size does. That is harmless, but for
MatrixDiagV2 and V3: asked for a number of rows, they are refused where the length of the diagonal
is not known. (What a function's nodes note of their shapes doesn't hold for parts, and is gone.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.names import data_inputs, op_of
from graphs.op_types import PLACEHOLDERS
from rewrite.split.node_writer import NodeWriter

_DIAGONALS = frozenset(("MatrixDiagV2", "MatrixDiagV3"))
_ROWS, _COLUMNS = 2, 3


def wants_known_width(node: Any, number: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether TensorFlow has to know how long an op's input 0 is in its last dimension.

    Not where the number of rows is computed of what is fed: that may have another size in each run,
    and so may the diagonal.

    Args:
      node: an op.
      number: a function from an input's name to its value, None where a run decides.
      nodes: {name: NodeDef} of the step.
    """
    if node.op not in _DIAGONALS:
        return False
    asked = [data_inputs(node)[position] for position in (_ROWS, _COLUMNS)]
    values = {name: number(name) for name in asked}
    return any(v is not None and int(v) != -1 and not _is_of_feeds(nodes, name)
               for name, v in values.items())  # fmt: skip


def _is_of_feeds(nodes: Mapping[str, Any], name: str) -> bool:
    """Whether a number is computed of an input, if only of its shape."""
    waiting, met = [op_of(name)], set[str]()
    while waiting:
        node = nodes[waiting.pop()]
        if node.op in PLACEHOLDERS:
            return True
        more = {op_of(each) for each in data_inputs(node)} - met
        met |= more
        waiting += more
    return False


def of_known_width(writer: NodeWriter, tensor: str, shape: Any, dtype: Any) -> str:
    """The tensor, with the last dimension of this shape known, and no other one."""
    name = writer.free_name(f"{tensor.partition(':')[0]}/known")
    node = writer.node("EnsureShape", name, [tensor], T=dtype)
    for size in (*np.full(len(shape) - 1, -1), shape[-1]):
        node.attr["shape"].shape.dim.add(size=int(size))
    return f"{name}:0"

"""Says how long the diagonals are of which a split step makes matrices.

TensorFlow doesn't know the shape of what a variable of a SavedModel holds while it loads the graph,
nor any size that a run computes, as a step of any batch size does. That is harmless, but for
MatrixDiagV2 and V3: asked for a number of rows, they are refused where the length of the diagonal
is not known. (What a function's nodes note of their shapes doesn't hold for parts, and is gone.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphs.names import data_inputs
from rewrite.split.node_writer import NodeWriter

_DIAGONALS = frozenset(("MatrixDiagV2", "MatrixDiagV3"))
_ROWS, _COLUMNS = 2, 3


def wants_known_width(node: Any, number: Any) -> bool:
    """Whether TensorFlow has to know how long an op's input 0 is in its last dimension.

    Args:
      node: an op.
      number: a function from an input's name to its value, None where a run decides.
    """
    if node.op not in _DIAGONALS:
        return False
    asked = [number(data_inputs(node)[position]) for position in (_ROWS, _COLUMNS)]
    return any(value is not None and int(value) != -1 for value in asked)


def of_known_width(writer: NodeWriter, tensor: str, shape: Any, dtype: Any) -> str:
    """The tensor, with the last dimension of this shape known, and no other one."""
    name = writer.free_name(f"{tensor.partition(':')[0]}/known")
    node = writer.node("EnsureShape", name, [tensor], T=dtype)
    for size in (*np.full(len(shape) - 1, -1), shape[-1]):
        node.attr["shape"].shape.dim.add(size=int(size))
    return f"{name}:0"

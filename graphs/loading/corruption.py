"""Damage that TensorFlow would tell late or not at all: sizes and functions that can't be."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from graphs.errors import ModelError

_CALLS = frozenset(
    "PartitionedCall StatefulPartitionedCall While StatelessWhile If StatelessIf Case "
    "StatelessCase".split()
)


def require_sound(node: Any, functions: Collection[str]) -> None:
    """Raises ModelError where a NodeDef can't be meant as it stands.

    Args:
      node: of a main graph or a function.
      functions: names of the library.
    """
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    if shape is not None and any(dim.size < -1 for dim in shape.dim):
        sizes = [dim.size for dim in shape.dim]
        raise _damaged(node, f"the shape {sizes}; sizes are 0 or more, -1 where they are unknown")
    if node.op == "Const" and node.attr["value"].tensor.tensor_content:
        _require_whole(node)
    if node.op in _CALLS:
        for value in node.attr.values():
            for function in (value.func, *value.list.func):
                if function.name and function.name not in functions:
                    raise _damaged(node, f"a call of {function.name!r}, which is not defined")


def _require_whole(node: Any) -> None:
    import tensorflow as tf

    tensor = node.attr["value"].tensor
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    try:
        width = tf.as_dtype(tensor.dtype).size
    except TypeError:
        raise _damaged(node, f"a value of the unknown type {tensor.dtype}") from None
    if width and len(tensor.tensor_content) != math.prod(sizes) * width:
        raise _damaged(
            node,
            f"a value of {len(tensor.tensor_content)} bytes for the shape {sizes} of "
            f"{math.prod(sizes) * width} bytes",
        )


def _damaged(node: Any, found: str) -> ModelError:
    return ModelError(
        f"reading the graph: op {node.name!r} has {found}; the model is damaged, save it again"
    )

"""Finds damage in a graph that TensorFlow would report late or not at all."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from graphs import op_types
from graphs.errors import ModelError
from graphs.function_library import named_functions
from graphs.graph_view import GraphView

_CALLS = op_types.CALLS | op_types.LOOPS | op_types.CONDITIONALS


def require_sound(view: GraphView) -> None:
    """Checks the shapes, the values and the calls of all ops, those in functions too.

    Raises:
      ModelError: a size is impossible, a constant cut off, or a called function not there.
    """
    for nodes in (*(function.node_def for function in view.library.values()), view.graph_def.node):
        for node in nodes:
            _require_sound(node, view.library)


def _require_sound(node: Any, functions: Collection[str]) -> None:
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    if shape is not None and any(dim.size < -1 for dim in shape.dim):
        sizes = [dim.size for dim in shape.dim]
        raise _damaged(node, f"the shape {sizes}; sizes are 0 or more, -1 where they are unknown")
    if node.op == "Const" and node.attr["value"].tensor.tensor_content:
        _require_whole(node)
    if node.op in _CALLS:
        for name in named_functions(node):
            if name and name not in functions:
                raise _damaged(node, f"a call of {name!r}, which is not defined")


def _require_whole(node: Any) -> None:
    """Checks that a constant has as many bytes as its shape and dtype say."""
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


def _damaged(node: Any, damage: str) -> ModelError:
    return ModelError(
        f"reading the graph: op {node.name!r} has {damage}; the model is damaged, save it again"
    )

"""Infers, and runs where that is possible, a single op of known inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphs.tensor_protos import placeholder
from rewrite.split.known_values import OF_ANY_SHAPE, is_pure
from rewrite.split.op_view import Shape

_MAX_ELEMENTS = 1024

Spec = tuple[str, Shape, "np.ndarray | None", Any]
"""dtype, shape, value, VarHandleOp of a resource."""


def may_run(node: Any, dtypes: Sequence[str], shapes: Sequence[Shape]) -> bool:
    """Whether an op is pure and small enough to be evaluated beforehand."""
    if node.op == "Const":
        return False
    for shape in shapes if node.op not in OF_ANY_SHAPE else ():
        if shape is None or min(shape, default=0) < 0 or math.prod(shape) > _MAX_ELEMENTS:
            return False
    return is_pure(node, dtypes)


def one_op(node: Any, specs: Sequence[Spec]) -> tuple[list[Shape], list[np.ndarray | None]]:
    """Shapes of the outputs of an op; their values where all inputs have one."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION  # scalars were of any shape once
    copy = graph_def.node.add(op=node.op, name="op")
    for key, attr in node.attr.items():
        if not key.startswith("_"):
            copy.attr[key].CopyFrom(attr)
    for position, (dtype, shape, value, handle) in enumerate(specs):
        name = f"input_{position}"
        copy.input.append(name)
        if value is not None:
            const = graph_def.node.add(op="Const", name=name)
            const.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
            const.attr["dtype"].type = const.attr["value"].tensor.dtype
        elif handle is not None:
            graph_def.node.add().CopyFrom(handle)
            graph_def.node[-1].name = name
            del graph_def.node[-1].input[:]
            graph_def.node[-1].attr.pop("_class", None)
        else:
            graph_def.node.append(placeholder(name, dtype, shape))
    has_values = bool(specs) and all(value is not None for _, _, value, _ in specs)
    # Of a large constant the shape is all that counts; few inputs have values in a loop.
    return _one_op(graph_def.SerializeToString(deterministic=True), has_values)


@functools.lru_cache(maxsize=4096)
def _one_op(serialized: bytes, has_values: bool) -> tuple[list[Shape], list[np.ndarray | None]]:
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(serialized)
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(graph_def, name="")
        except (ValueError, tf.errors.OpError):  # an input's shape is known too little
            return [], []
        outputs = graph.get_operation_by_name("op").outputs
        shapes: list[Shape] = [
            None
            if each.shape.rank is None
            else tuple(-1 if size is None else size for size in each.shape.as_list())
            for each in outputs
        ]
        dtypes = [each.dtype.base_dtype.name for each in outputs]
        if not has_values or not may_run(graph_def.node[0], dtypes, shapes):
            return shapes, [None] * len(shapes)
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run(outputs)
        return [value.shape for value in values], values

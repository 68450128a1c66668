"""Values of tensors that no run can change: constants, and what is computed of static shapes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.building.op_outputs import op_definition
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input, with_index

SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank"})
OF_ANY_SHAPE = frozenset({"BroadcastGradientArgs"})
"""Ops whose outputs are small, although TensorFlow infers no shape for them."""

_NUMBERS = frozenset({"int32", "int64", "bool", "float16", "bfloat16", "float32", "float64"})
_MAX_ELEMENTS = 1024  # shapes, axes, permutations and their like have far fewer


class KnownValues:
    """Evaluates, once for the whole graph, all small tensors that no run can change.

    What is computed of static shapes is taken at the shapes that the graph was inferred at.
    """

    def __init__(self, flat: FlatGraph, properties: TensorProperties):
        self._value_of = _of_shapes(flat, properties)
        self._value_of.update(_computed(flat, properties, self._value_of))

    def value(self, tensor: str) -> np.ndarray | None:
        """The array that "op:i" always has, or None."""
        return self._value_of.get(tensor)

    def copy(self) -> KnownValues:
        """The same values, to which others can be added."""
        other = copy.copy(self)
        other._value_of = dict(self._value_of)
        return other

    def learn(self, tensor: str, value: np.ndarray) -> None:
        """Adds a value that was found in another way."""
        self._value_of[tensor] = value


def _of_shapes(flat: FlatGraph, properties: TensorProperties) -> dict[str, np.ndarray]:
    """Values of ops that read nothing of their input but its shape."""
    values = {}
    for node in flat.graph_def.node:
        if node.op not in SHAPE_OPS:
            continue
        for index, name in enumerate(n for n in node.input if not n.startswith("^")):
            source = parse_input(name)
            shape = properties.shape_of[source.op][source.output]
            if shape is None or min(shape, default=0) < 0:
                continue
            dtype = np.dtype(properties.dtype_of[node.name][index])
            number = {"Rank": len(shape), "Size": math.prod(shape)}.get(node.op)
            value = np.array(shape if number is None else number, dtype=dtype)
            values[f"{node.name}:{index}"] = value
    return values


def _computed(
    flat: FlatGraph, properties: TensorProperties, known: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Values of constants and of what is computed of constants and `known` alone."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef(versions=flat.graph_def.versions)
    const_of: dict[str, str] = {}
    wanted: list[str] = []
    folded: set[str] = set()
    for node in flat.graph_def.node:
        if node.name in flat.unit_of_node or not _may_fold(node, properties):
            continue
        sources = [parse_input(n) for n in node.input if not n.startswith("^")]
        if not all(s.op in folded or s.tensor in known for s in sources):
            continue
        copy = graph_def.node.add(op=node.op, name=node.name)
        for name, attr in node.attr.items():
            if not name.startswith("_"):
                copy.attr[name].CopyFrom(attr)
        for source in sources:
            if source.op in folded:
                copy.input.append(source.tensor)
                continue
            if source.tensor not in const_of:
                const = graph_def.node.add(op="Const", name=f"tfplace_known_{len(const_of)}")
                const.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(known[source.tensor]))
                const.attr["dtype"].type = const.attr["value"].tensor.dtype
                const_of[source.tensor] = const.name
            copy.input.append(const_of[source.tensor])
        folded.add(node.name)
        wanted.extend(f"{node.name}:{i}" for i in range(len(properties.dtype_of[node.name])))
    if not wanted:
        return {}
    with tf.Graph().as_default() as graph:
        tf.compat.v1.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            return dict(zip(map(with_index, wanted), session.run(wanted), strict=True))


def _may_fold(node: Any, properties: TensorProperties) -> bool:
    """Whether an op is pure and small enough to be evaluated beforehand."""
    if node.op in SHAPE_OPS or (node.op != "Const" and not node.input):
        return False
    if not set(properties.dtype_of[node.name]) <= _NUMBERS:
        return False
    for shape in properties.shape_of[node.name]:
        if node.op in OF_ANY_SHAPE:
            continue
        if shape is None or min(shape, default=0) < 0 or math.prod(shape) > _MAX_ELEMENTS:
            return False
    return not op_definition(node.op, node.name).is_stateful

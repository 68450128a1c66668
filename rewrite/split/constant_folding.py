"""Values of tensors that no run can change: constants, and what is computed of static shapes."""

import copy
import math
from collections.abc import Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs.building.known_tensors import constant_node
from graphs.building.op_outputs import op_definition
from graphs.building.shapes import TensorProperties
from graphs.effects import acts_outside
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, parse_input
from graphs.op_types import REACHES_OUT
from graphs.protos import GraphDef, NodeDef, Shape

SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank"})
_NUMBERS = frozenset({"int32", "int64", "bool", "float16", "bfloat16", "float32", "float64"})
# Only one side of a condition has a value in a run; evaluating the other would fail.
_CONTROL = frozenset({"Switch", "_SwitchN", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
DEFAULTS = frozenset({"PlaceholderWithDefault"})
"""Constants that a run may feed another value for."""
OF_ANY_SHAPE = frozenset({"BroadcastGradientArgs", "BroadcastArgs", "ListDiff"})
"""Ops whose outputs are no larger than what they read, though TensorFlow infers no shape."""

_MAX_ELEMENTS = 1024  # shapes, axes, permutations and their like have far fewer
_MAX_INTEGERS = 1 << 16  # a row's number for each entry of the batch


class KnownValues:
    """Evaluates, once for the whole graph, all small tensors that no run can change.

    What is computed of static shapes is taken at the shapes that the graph was inferred at.
    """

    def __init__(self, flat: FlatGraph, properties: TensorProperties):
        self._value_of: dict[str, np.ndarray] = {}
        for node in flat.graph_def.node:
            # Ops that read nothing of their input but its shape.
            for index, name in enumerate(data_inputs(node)) if node.op in SHAPE_OPS else ():
                shape = properties.shape(name)
                if shape is None or min(shape, default=0) < 0:
                    continue
                dtype = np.dtype(properties.dtype_of[node.name][index])
                number = {"Rank": len(shape), "Size": math.prod(shape)}.get(node.op)
                value = np.array(shape if number is None else number, dtype=dtype)
                self._value_of[f"{node.name}:{index}"] = value
        nodes = [
            node
            for node in flat.graph_def.node
            if node.name not in flat.unit_of_node and _may_fold(node, properties)
        ]
        self.refused = _evaluate(flat, nodes, properties, self._value_of)
        """Ops that can't be run with what they are given at these shapes."""

    def value(self, tensor: str) -> np.ndarray | None:
        """The array that "op:i" always has, or None."""
        return self._value_of.get(tensor)

    def copy(self) -> "KnownValues":
        """The same values, to which others can be added."""
        other = copy.copy(self)
        other._value_of = dict(self._value_of)
        return other

    def learn(self, tensor: str, value: np.ndarray) -> None:
        """Adds a value that was found in another way."""
        self._value_of[tensor] = value


def _evaluate(
    flat: FlatGraph,
    nodes: Sequence[NodeDef],
    properties: TensorProperties,
    values: dict[str, np.ndarray],
) -> set[str]:
    """Adds what these ops make of `values` alone.

    Returns:
      Ops that can't be run with what they are given; what is made of them has no value.
    """
    graph_def = tf.compat.v1.GraphDef(versions=flat.graph_def.versions)
    given: dict[str, str] = {}  # {tensor that is known already: constant that holds it}
    folded: dict[str, NodeDef] = {}
    wanted: list[str] = []
    for node in nodes:
        if node.op == "Const":
            values[f"{node.name}:0"] = tf.make_ndarray(node.attr["value"].tensor)
            continue
        sources = [parse_input(n) for n in data_inputs(node)]
        if not all(s.op in folded or s.tensor in values for s in sources):
            continue
        kept = {key: node.attr[key] for key in node.attr if not key.startswith("_")}
        copy = graph_def.node.add(op=node.op, name=node.name, attr=kept)
        for source in sources:
            tensor = source.tensor
            if source.op not in folded and tensor not in given:
                given[tensor] = f"tfplace_known_{len(given)}"
                graph_def.node.append(constant_node(given[tensor], values[tensor]))
            copy.input.append(given.get(tensor, tensor))
        folded[node.name] = node
        wanted.extend(f"{node.name}:{i}" for i in range(len(properties.dtype_of[node.name])))
    try:
        values.update(zip(wanted, _run(graph_def, wanted), strict=True) if wanted else ())
        return set()
    except (ValueError, tf.errors.OpError):
        if len(folded) == 1:
            return set(folded)
    tried, half = [*folded.values()], len(folded) // 2
    parts = tried[:half], tried[half:]
    return set().union(*(_evaluate(flat, part, properties, values) for part in parts))


def _run(graph_def: GraphDef, tensors: Sequence[str]) -> list[np.ndarray]:
    """Evaluates tensors, as they are: optimizing the graph would take longer than running it."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=config) as session:
            return [np.asarray(value) for value in session.run(list(tensors))]


def is_pure(node: NodeDef, dtypes: Sequence[str]) -> bool:
    """Whether an op makes numbers, and no run can change which."""
    if (
        node.op in DEFAULTS | REACHES_OUT
        or not dtypes
        or not set(dtypes) <= _NUMBERS
        or acts_outside(node)
    ):
        return False
    return not op_definition(node.op, node.name).is_stateful


def _may_fold(node: NodeDef, properties: TensorProperties) -> bool:
    """Whether an op is pure and small enough to be evaluated beforehand."""
    if node.op in SHAPE_OPS or node.op in _CONTROL or (node.op != "Const" and not node.input):
        return False
    name = node.name
    return may_run(node, properties.dtype_of[name], properties.shape_of[name], _MAX_INTEGERS)


def may_run(
    node: NodeDef,
    dtypes: Sequence[str],
    shapes: Sequence[Shape],
    most_integers: int = _MAX_ELEMENTS,
) -> bool:
    """Whether an op is pure and small enough to be evaluated beforehand.

    Args:
      dtypes, shapes: of its outputs.
      most_integers: that one of them may have.
    """
    for dtype, shape in zip(dtypes, shapes, strict=True) if node.op not in OF_ANY_SHAPE else ():
        most = most_integers if dtype in ("int32", "int64") else _MAX_ELEMENTS
        if shape is None or min(shape, default=0) < 0 or math.prod(shape) > most:
            return False
    return is_pure(node, dtypes)

"""Shapes and values that TensorFlow's inference doesn't see: behind loops, in lists, in bodies.

TensorFlow infers nothing through a loop whose declared shapes are open, and nothing through a
TensorList. `Facts` begins with what is known of a graph and learns the rest op by op, in the order
of the graph, as the rules are asked.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.known_tensors import Known, add_stand_in, constant_node
from graphs.building.pieces import known_shape
from graphs.building.same_shapes import bare
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, source_of, tensor_of
from graphs.protos import NodeDef, Shape, is_open
from rewrite.split.constant_folding import SHAPE_OPS, KnownValues, may_run
from rewrite.split.list_facts import TensorFacts, complete_list
from rewrite.split.states import State

_Found = tuple["list[Shape]", "list[np.ndarray | None]", "bool"]


@functools.lru_cache(maxsize=4096)
def one_op(asked: bytes, given: tuple[Known, ...]) -> _Found:
    """Shapes of the outputs of an op; their values where all inputs have one; if it takes these.

    What was made up need not be what the op takes.

    Args:
      asked: its NodeDef, of no name and inputs.
    """
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION  # scalars were of any shape once
    node = graph_def.node.add()
    node.ParseFromString(asked)
    node.name = "op"
    for position, known in enumerate(given):
        node.input.append(f"input_{position}")
        add_stand_in(graph_def, f"input_{position}", known)
    has_values = bool(given) and all(each.exact and each.dtype != "resource" for each in given)
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(graph_def, name="")
        except (ValueError, tf.errors.OpError):  # an input's shape is known too little
            return [], [], False
        outputs = graph.get_operation_by_name("op").outputs
        shapes = [known_shape(each.shape) for each in outputs]
        dtypes = [each.dtype.base_dtype.name for each in outputs]
        if not has_values or not may_run(node, dtypes, shapes):
            return shapes, [None] * len(shapes), True
        try:
            with tf.compat.v1.Session(graph=graph) as session:
                values = session.run(outputs)
        except tf.errors.OpError:
            return shapes, [None] * len(shapes), False
        return [value.shape for value in values], values, True


class Returned(NamedTuple):
    """What a branch of a conditional returns."""

    facts: "Facts"  # of the branch
    tensors: Sequence[str]  # of it, one for each output of the conditional
    states: Sequence[State]  # theirs


class Facts(TensorFacts):
    """What is known of a graph's tensors, which grows as the graph is read."""

    def __init__(self, flat: FlatGraph, properties: TensorProperties, values: KnownValues):
        super().__init__(properties, values)
        self.flat = flat
        self.same_as: dict[str, str] = {}
        """{"op:i": tensor that it always is}, of what loops hand on unchanged."""
        self.given: dict[str, tuple[Facts, str]] = {}
        """{argument of a function "op:i": where it comes from}."""
        self.returned: dict[str, Mapping[str, Returned]] = {}
        """{conditional: {branch: what it returns}}."""
        self.refused: set[str] = set(values.refused)
        """Ops that don't take what they are given."""

    def handle(self, tensor: str) -> NodeDef | None:
        """The VarHandleOp that a resource comes from."""
        node = self._holder(tensor)
        return node if node is not None and node.op == "VarHandleOp" else None

    def _holder(self, resource: str) -> NodeDef | None:
        nodes = self.flat.nodes
        return nodes.get(
            op_of(source_of(self.same_as.get(resource, resource), nodes, op_types.SAME))
        )

    def learn_same(self, tensor: str, other: str) -> None:
        """Notes that a tensor is always another one."""
        self.same_as[tensor] = self.same_as.get(other, other)
        self._news.add(tensor)

    def complete(self, node: NodeDef) -> None:
        """Learns what there is to know of the outputs of an op, of that of its inputs."""
        inputs = [tensor_of(n) for n in data_inputs(node)]
        if node.op == "VariableShape":
            self._variable_shape(node, inputs[0])
        elif node.op == "LookupTableFindV2" and self._holds_scalars(inputs[0]):
            self.learn_shape(f"{node.name}:0", self.shape(inputs[1]))
        elif node.op == "OptionalGetValue":
            self._complete_optional(node, inputs[0])
        elif any(self.dtype(tensor) == "variant" for tensor in inputs) or "TensorList" in node.op:
            complete_list(self, node, inputs)
        elif node.op in SHAPE_OPS:
            self._complete_shape(node, inputs)
        elif node.name not in self.flat.unit_of_node and self._is_incomplete(node, inputs):
            self._infer(node, inputs)

    def origin(self, tensor: str) -> "tuple[Facts, str]":
        """Where a value comes from, before it was handed into functions and put into Optionals."""
        facts: Facts = self
        while True:
            node = facts.flat.nodes[op_of(tensor)]
            if tensor in facts.given:
                facts, tensor = facts.given[tensor]
            elif node.op == "Identity":
                tensor = tensor_of(node.input[0])
            elif node.op == "OptionalGetValue":
                made = facts.put_in(tensor_of(node.input[0]))
                if made is None:
                    return facts, tensor
                facts, tensor = made[0], made[1][int(tensor.partition(":")[2])]
            else:
                return facts, tensor

    def put_in(self, optional: str) -> "tuple[Facts, list[str]] | None":
        """What was put into an Optional; None where that is not known."""
        facts, tensor = self.origin(optional)
        node = facts.flat.nodes[op_of(tensor)]
        if node.op != "OptionalFromValue":
            return None
        return facts, [tensor_of(name) for name in data_inputs(node)]

    def _complete_optional(self, node: NodeDef, optional: str) -> None:
        """What is taken out of an Optional is what was put in."""
        facts, tensors = self.put_in(optional) or (self, [])
        for index, tensor in enumerate(tensors):
            output = f"{node.name}:{index}"
            self.learn_shape(output, facts.shape(tensor))
            value = facts.value(tensor)
            if value is not None:
                self.learn_value(output, value)
            if tensor in facts.elements:
                self.elements[output] = facts.elements[tensor]

    def _variable_shape(self, node: NodeDef, handle: str) -> None:
        producer = self.handle(handle)
        shape = None if producer is None else [d.size for d in producer.attr["shape"].shape.dim]
        if shape is not None and min(shape, default=0) >= 0:
            self.learn_shape(f"{node.name}:0", (len(shape),))
            self.learn_value(f"{node.name}:0", np.array(shape, self.dtype(f"{node.name}:0")))

    def _holds_scalars(self, table: str) -> bool:
        """Whether a table has one number or text for each key; TensorFlow doesn't infer it."""
        node = self._holder(table)
        return node is not None and node.op in ("HashTableV2", "MutableHashTableV2")

    def _complete_shape(self, node: NodeDef, inputs: Sequence[str]) -> None:
        for index, tensor in enumerate(inputs):
            shape = self.shape(tensor)
            if is_open(shape) or shape is None or self.value(f"{node.name}:{index}") is not None:
                continue
            number: object = {"Rank": len(shape), "Size": int(np.prod(shape))}.get(node.op, shape)
            value = np.array(number, self.dtype_of[node.name][index])
            self.learn_shape(f"{node.name}:{index}", value.shape)
            self.learn_value(f"{node.name}:{index}", value)

    def _is_incomplete(self, node: NodeDef, inputs: Sequence[str]) -> bool:
        """Whether something is unknown of the outputs that what was learned might show."""
        if self._news.isdisjoint(inputs):
            return False
        if any(is_open(shape) for shape in self.shape_of[node.name]):
            return True
        return (
            bool(self.shape_of[node.name])
            and self.value(f"{node.name}:0") is None
            and all(self.value(tensor) is not None for tensor in inputs)
            and may_run(node, self.dtype_of[node.name], self.shape_of[node.name])
        )

    def argument(self, tensor: str) -> Known:
        """All that is known of a tensor."""
        dtype, value = self.dtype(tensor), self.value(tensor)
        exact = self.handle(tensor) if value is None else constant_node("", value, dtype)
        return Known(dtype, self.shape(tensor), b"" if exact is None else bare(exact))

    def _infer(self, node: NodeDef, inputs: Sequence[str]) -> None:
        shapes, values, is_taken = one_op(bare(node), tuple(self.argument(t) for t in inputs))
        self.refused |= set() if is_taken else {node.name}
        for index, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self.learn_shape(f"{node.name}:{index}", shape)
            if value is not None:
                self.learn_value(f"{node.name}:{index}", value)

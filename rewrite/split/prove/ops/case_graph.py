"""An op whole and in parts, as ops of a graph that a child process runs; it is all TensorFlow."""

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from graphs.building.known_tensors import constant_node
from graphs.building.op_outputs import argument_types
from graphs.protos import NodeDef
from rewrite.split.float64.types import fill_in_types, widened
from rewrite.split.prove.ops.case_inputs import CantMakeUp, is_exact, made_up
from rewrite.split.prove.ops.op_case import OpCase
from rewrite.split.states import Sharded

v1 = tf.compat.v1
_HELD = ("Toutput_types", "output_types")
_DOUBLE_TOLERANCE = 1e-9
# In the ratio of their rounding errors; sums of a million terms lose some more digits.
_TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1, "complex64": 1e-4}


class CaseGraph:
    """The ops, feeds and variables of one case.

    Attributes:
      case: what is proven.
      nodes: the op and what is read; their names begin with the scope.
      copies: the copies of the op, which read outputs 0 of `nodes`.
      feeds: {tensor: array}.
      variables: {VarHandleOp: what it holds}.
      whole: the outputs of the op.
      parts: for each shard the outputs of its copy.
      tolerance: how far parts and whole may be apart, in the largest value.
    """

    def __init__(self, case: OpCase, scope: str):
        """Raises CantMakeUp where there are no inputs for it."""
        self.case = case
        self.nodes: list[NodeDef] = []
        self.copies: list[NodeDef] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.variables: dict[str, np.ndarray] = {}
        self._scope = scope
        self._node, self._copy = _computing(case)
        inputs = [self._input(i, t) for i, t in enumerate(argument_types(self._node, {}))]
        count = len(argument_types(self._node, {}, of_outputs=True))
        self.tolerance = _tolerance(case, self._node)
        self.nodes.append(self._op(self._node, "whole", [whole for whole, _ in inputs]))
        sizes = sum(case.sizes), case.sizes
        self.whole = [self._fetched("whole", i, sizes[0], self.nodes) for i in range(count)]
        self.parts = []
        for shard in range(len(case.sizes)):
            name = f"shard_{shard}"
            self.copies.append(self._op(self._copy, name, [parts[shard] for _, parts in inputs]))
            size = sizes[1][shard]
            self.parts.append([self._fetched(name, i, size, self.copies) for i in range(count)])

    def _op(self, node: NodeDef, name: str, inputs: Sequence[str]) -> NodeDef:
        new = copy.deepcopy(node)
        new.name = f"{self._scope}/{name}"
        new.input.extend(inputs)
        return new

    def _input(self, position: int, dtype: int) -> tuple[str, list[str]]:
        """The names of the whole input and of what each copy reads."""
        name = f"{self._scope}/input_{position}"
        if self.case.inputs[position].is_handle:
            return self._variable(position, name)
        make = self._placeholder
        if self.case.inputs[position].is_optional:
            dtype, make = self._held_dtype(), self._optional
        elif self.case.inputs[position].is_list:
            dtype, make = self._element_dtype(), self._list
        elif tf.as_dtype(dtype) in (tf.variant, tf.resource):
            raise CantMakeUp(f"a {tf.as_dtype(dtype).name} has no values to make up")
        whole, parts = made_up(self.case, position, tf.as_dtype(dtype).as_numpy_dtype)
        first = make(f"{name}/whole", whole, dtype)
        return first, [
            first if part is whole else make(f"{name}/shard_{shard}", part, dtype)
            for shard, part in enumerate(parts)
        ]

    def _element_dtype(self) -> int:
        """What lists hold: what the op says; of an op that works on any list a float."""
        own = self._node.attr["element_dtype"].type if "element_dtype" in self._node.attr else 0
        return own or tf.float32.as_datatype_enum

    def _list(self, name: str, value: np.ndarray, dtype: int) -> str:
        """A TensorList of the rows of an array."""
        rows = self._placeholder(f"{name}/rows", value, dtype)
        shape = constant_node(f"{name}/shape", np.array(value.shape[1:], np.int32))
        made = v1.NodeDef(op="TensorListFromTensor", name=name, input=[rows, shape.name])
        made.attr["element_dtype"].type = dtype
        made.attr["shape_type"].type = tf.int32.as_datatype_enum
        self.nodes += [shape, made]
        return name

    def _held_dtype(self) -> int:
        """What Optionals hold: what the op says; of an op that works on any Optional a float."""
        said = [self._node.attr[name].list.type for name in _HELD if name in self._node.attr]
        return int(said[0][0]) if said else int(tf.float32.as_datatype_enum)

    def _optional(self, name: str, value: np.ndarray, dtype: int) -> str:
        """An Optional that holds an array."""
        held = self._placeholder(f"{name}/held", value, dtype)
        made = v1.NodeDef(op="OptionalFromValue", name=name, input=[held])
        made.attr["Toutput_types"].list.type.append(dtype)
        self.nodes.append(made)
        return name

    def _fetched(self, name: str, index: int, size: int, nodes: list[NodeDef]) -> str:
        """What to fetch of an output: of a list all its rows, of an Optional what it holds."""
        tensor = f"{self._scope}/{name}:{index}"
        node = self._node if nodes is self.nodes else self._copy
        types = argument_types(node, {}, of_outputs=True)
        if index not in self.case.lists and types[index] == tf.variant.as_datatype_enum:
            held = v1.NodeDef(op="OptionalGetValue", name=f"{self._scope}/{name}/held_{index}")
            held.input.append(tensor)
            held.attr["output_types"].list.type.append(self._held_dtype())
            held.attr["output_shapes"].list.shape.add(unknown_rank=True)
            nodes.append(held)
            return f"{held.name}:0"
        if index not in self.case.lists:
            return tensor
        shape, state = self.case.lists[index], self.case.outputs[index]
        if shape is None or min(shape, default=0) < 0:
            raise CantMakeUp("the shape of a list's elements is not known before the run")
        sizes = list(shape)
        if isinstance(state, Sharded):
            sizes[state.axis - 1] = state.size(size)
        rows = f"{self._scope}/{name}/rows_{index}"
        of_rows = constant_node(f"{rows}/shape", np.array(sizes, np.int32))
        stack = v1.NodeDef(op="TensorListStack", name=rows, input=[tensor, of_rows.name])
        stack.attr["element_dtype"].type = self._element_dtype()
        stack.attr["num_elements"].i = -1
        nodes += [of_rows, stack]
        return f"{rows}:0"

    def _placeholder(self, name: str, value: np.ndarray, dtype: int) -> str:
        node = v1.NodeDef(op="Placeholder", name=name)
        node.attr["dtype"].type = dtype
        self.nodes.append(node)
        self.feeds[f"{name}:0"] = value
        return name

    def _variable(self, position: int, name: str) -> tuple[str, list[str]]:
        """A variable of the type that the op reads it as; all copies read the same one."""
        given = self.case.inputs[position]
        own = self._node.attr["dtype" if "dtype" in self._node.attr else "T"].type
        dtype = tf.as_dtype(own or given.dtype)
        inputs = list(self.case.inputs)
        inputs[position] = dataclasses.replace(given, is_handle=False)
        content = dataclasses.replace(self.case, inputs=tuple(inputs))
        node = v1.NodeDef(op="VarHandleOp", name=name)
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(given.shape).as_proto())
        node.attr["shared_name"].s = name.encode()
        self.nodes.append(node)
        self.variables[name] = made_up(content, position, dtype.as_numpy_dtype)[0]
        return name, [name] * len(self.case.sizes)


def _computing(case: OpCase) -> tuple[NodeDef, NodeDef]:
    """The op and its copy, in float64 where both have a kernel for that.

    A Cast is run as it is: what it does is to change types. So is what calls functions, and a
    constant.
    """
    own = _with_types(case.node), _with_types(case.copy)
    is_own = case.node.op in ("Cast", "Const") or case.library is not None
    if is_own or not case.is_widened:
        return own
    wide = widened(case.node), widened(case.copy)
    return own if None in wide else wide


def _with_types(node: NodeDef) -> NodeDef:
    """A copy of an op that says the types, too, that it has by default."""
    own = copy.deepcopy(node)
    fill_in_types(own, {})
    return own


def _tolerance(case: OpCase, node: NodeDef) -> float:
    """How far parts and whole may be apart; 0 where all floats are whole numbers, or there are
    none."""
    numbers = [*argument_types(node, {}), *argument_types(node, {}, of_outputs=True)]
    types = [tf.as_dtype(number).base_dtype for number in numbers]
    inexact = [
        each.name
        for each in types
        if (each.is_floating or each.is_complex) and not is_exact(case, each.as_numpy_dtype)
    ]
    return max((_TOLERANCES.get(name, _DOUBLE_TOLERANCE) for name in inexact), default=0.0)

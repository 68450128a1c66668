"""Finds in a split step what every op of the unsplit one has become, and what every tensor is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, tensor_of
from rewrite.pass_base import RewriteError
from rewrite.split.decide import Decisions
from rewrite.split.joint_reader import JointReader
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.meanings import Meaning, Value, Whole
from rewrite.split.op_view import Split
from rewrite.split.size_arithmetic import NUMBER_OPS, numbers
from rewrite.split.states import WHOLE, Partial, State


class StepReading:
    """A split step, understood.

    Attributes:
      nodes: {name: NodeDef} of the split step.
      sizes: entries of the batch in each shard.
      copies: {op: its copies, one per shard}.
      stands_in: {op that asks for a shape: the ops that say it in its place, one per output}.
      reader: what it has met of joins, sums and cuts.
      asserts: the ops that refuse a batch with too few entries.
    """

    def __init__(
        self,
        flat: FlatGraph,
        properties: TensorProperties,
        decisions: Decisions,
        graph_def: Any,
        sizes: Sequence[int],
        copies: Mapping[str, Sequence[str]],
    ):
        """Begins and ends.

        Args:
          flat, properties, decisions: the unsplit step.
          graph_def: the split step.
          sizes: entries of the batch in each shard.
          copies: which ops are said to stand for an op; it is proven that they do.

        Raises:
          RewriteError: an op is missing, or has no place in a split step.
        """
        self._flat, self._properties, self._decisions = flat, properties, decisions
        self.nodes = {node.name: node for node in graph_def.node}
        self.sizes = tuple(sizes)
        self.copies: dict[str, list[str]] = {}
        self.stands_in: dict[str, list[str]] = {}
        self._names, self._found = copies, set(flat.nodes)
        self.reader = JointReader(self.sizes, self._whole)
        self._value_of: dict[str, Value] = {}  # by what an input of a NodeDef says
        self._said: dict[str, str] = {}
        self._alone = [frozenset({shard}) for shard in range(len(self.sizes))]
        self.asserts: set[str] = set()
        self._awaited: set[str] = set()
        for node in flat.graph_def.node:
            self._find(node)
        known = {*flat.nodes, *(name for names in self.copies.values() for name in names)}
        for node in graph_def.node:
            if node.name not in known or node.name in self.stands_in:
                self._read_joint(node)
        if not self.asserts <= self._awaited:
            raise RewriteError(f"reading a split step: nothing waits for {min(self.asserts)!r}")

    def meaning(self, name: str) -> Value:
        """What an input stands for: a tensor of the unsplit step, or a number.

        Raises:
          RewriteError: there is no such tensor, or it comes later.
        """
        if (said := self._said.get(name.removesuffix(":0"))) is not None:
            return Meaning(said)
        return self._value(name)

    def number(self, value: Value) -> np.ndarray | None:
        """The value of a number, or of a whole tensor that no run can change."""
        if not isinstance(value, Meaning):
            return value
        is_whole = value == Meaning(value.tensor)
        return self._decisions.values.value(value.tensor) if is_whole else None

    def said(self, name: str) -> np.ndarray | None:
        """The number that an op makes, however it stands for something."""
        return self.number(self._value(name))

    def _find(self, node: Any) -> None:
        """Finds an op's copies, or itself, and what its outputs stand for."""
        answer = self._decisions.answer_of_op[node.name]
        tensors = [f"{node.name}:{i}" for i in range(len(self._properties.dtype_of[node.name]))]
        if isinstance(answer, Split):
            names = self._named(node.name, len(self.sizes))
            self.copies[node.name] = names
            for shard, name in enumerate(names):
                copy = [
                    self._of_copy(tensor, state, shard, answer.is_mean)
                    for tensor, state in zip(tensors, answer.outputs, strict=True)
                ]
                self._means(name, copy)
            if answer.is_repeated and node.name in self.nodes:  # for the whole ops that read it
                self._means(node.name, [Meaning(tensor) for tensor in tensors])
        elif node.op in SHAPE_OPS and self._is_replaced(node):
            self.stands_in[node.name] = (
                self._named(node.name, len(tensors)) if node.op == "ShapeN" else [node.name]
            )
            for tensor, name in zip(tensors, self.stands_in[node.name], strict=True):
                self._said[name] = tensor
        else:
            self._get(node.name)
            self._means(node.name, [Meaning(tensor) for tensor in tensors])

    def _of_copy(self, tensor: str, state: State, shard: int, is_mean: bool) -> Meaning:
        if state == WHOLE:
            return Meaning(tensor)
        weighted = is_mean and isinstance(state, Partial)
        return Meaning(tensor, state, self._alone[shard], is_unweighted=weighted)

    def _named(self, op: str, count: int) -> list[str]:
        """The ops that stand for one, each of them for no other."""
        names = list(self._names.get(op, ()))
        if len({*names} - self._found) < count or len(names) != count:
            raise RewriteError(f"reading a split step: it has not {count} copies of {op!r}")
        self._found.update(names)
        return [self._get(name).name for name in names]

    def _get(self, name: str) -> Any:
        if name not in self.nodes:
            raise RewriteError(f"reading a split step: {name!r} is missing")
        return self.nodes[name]

    def _is_replaced(self, node: Any) -> bool:
        """Whether something else says what an op says of a shape, which is known."""
        count = len(self._properties.dtype_of[node.name])
        said = [self._decisions.values.value(f"{node.name}:{i}") for i in range(count)]
        states = self._decisions.state_of_tensor
        reads_parts = any(states[tensor_of(name)] != WHOLE for name in data_inputs(node))
        if any(each is None for each in said) or not reads_parts:
            return False
        here = self.nodes.get(node.name)
        return here is None or here.op != node.op or here.input[:] != node.input[:]

    def _read_joint(self, node: Any) -> None:
        """Understands an op that the unsplit step has not."""
        controls = [name for name in node.input if name.startswith("^")]
        inputs = [self._value(name) for name in data_inputs(node)]
        self._awaited.update(name[1:] for name in controls)
        if node.op in ("Assert", "NoOp"):
            self.asserts.update({node.name} if node.op == "Assert" else ())
            return
        is_late = any(self._get(name[1:]).op != "Assert" for name in controls)
        if is_late and node.name not in self._said:
            raise RewriteError(f"reading {node.name!r} of the split step: it waits for an op")
        if node.op in SHAPE_OPS:
            self._means(node.name, list(self._asked(node, inputs)))
            return
        known = [self.number(value) for value in inputs]
        of_tensor = node.op == "Identity" and isinstance(inputs[0], Meaning)
        if node.op in NUMBER_OPS and not of_tensor and all(v is not None for v in known):
            self._means(node.name, numbers(node, known))  # type: ignore[arg-type]
            return
        as_numbers = [
            v if isinstance(v, Meaning) else k for v, k in zip(inputs, known, strict=True)
        ]
        self._means(node.name, self.reader.read(node, as_numbers))  # type: ignore[arg-type]

    def _means(self, op: str, outputs: Iterable[Value]) -> None:
        """Says what the outputs of an op stand for."""
        for index, value in enumerate(outputs):
            self._value_of[f"{op}:{index}" if index else op] = value

    def _value(self, name: str) -> Value:
        value = self._value_of.get(name.removesuffix(":0"))
        if value is None:
            raise RewriteError(f"reading {name!r} of the split step: it is not there in time")
        return value

    def _asked(self, node: Any, inputs: Sequence[Value]) -> Iterator[np.ndarray]:
        import tensorflow as tf

        if set(node.attr) != ({"T"} if node.op == "Rank" else {"T", "out_type"}):
            raise RewriteError(f"reading {node.name!r} of the split step: its attributes are wrong")
        number = tf.int32 if node.op == "Rank" else tf.as_dtype(node.attr["out_type"].type)
        dtype = number.as_numpy_dtype
        for value in inputs:
            # Of a part: the first, all of it.
            is_first = isinstance(value, Meaning) and value.shards <= {0} and not value.rows
            asked = value.tensor if isinstance(value, Meaning) and is_first else ""
            if not asked or node.attr["T"].type != self._whole(asked).dtype:
                raise RewriteError(f"reading {node.name!r} of the split step: of what is this?")
            assert isinstance(value, Meaning)
            shape = self.reader.shape(value)
            said: Any = {"Size": int(np.prod(shape)), "Rank": len(shape)}.get(node.op, shape)
            yield np.array(said, dtype)

    def _whole(self, tensor: str) -> Whole:
        import tensorflow as tf

        dtype = tf.as_dtype(self._properties.dtype(tensor))
        return Whole(self._properties.shape(tensor), dtype.as_datatype_enum)

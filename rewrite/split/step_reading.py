"""Finds in a split step what every op of the unsplit one has become, and what every tensor is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, tensor_of
from rewrite.pass_base import RewriteError
from rewrite.split.decide import Decisions
from rewrite.split.joint_reader import Meaning, Value
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.op_view import Split
from rewrite.split.reading import Reading
from rewrite.split.states import WHOLE


class StepReading(Reading):
    """A split step, understood.

    Attributes:
      stands_in: {op that asks for a shape: the ops that say it in its place, one per output}.
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
        values = decisions.values.value
        facts = SimpleNamespace(shape=properties.shape, dtype=properties.dtype, value=values)
        super().__init__(facts, sizes, "the split step", asked=0)
        self._properties, self._decisions = properties, decisions
        self.nodes = {node.name: node for node in graph_def.node}
        self.stands_in: dict[str, list[str]] = {}
        self._names, self._found = copies, set(flat.nodes)
        self._said: dict[str, str] = {}
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
        """As of any graph; what says a shape stands for the op that asked for it."""
        if (said := self._said.get(name.removesuffix(":0"))) is not None:
            return Meaning(said)
        return super().meaning(name)

    def _find(self, node: Any) -> None:
        """Finds an op's copies, or itself, and what its outputs stand for."""
        answer = self._decisions.answer_of_op[node.name]
        tensors = [f"{node.name}:{i}" for i in range(len(self._properties.dtype_of[node.name]))]
        if isinstance(answer, Split):
            names = self._named(node.name, len(self.sizes))
            self.copies[node.name] = names
            for shard, name in enumerate(names):
                self.means(name, self.parts(node.name, answer, shard))
            if answer.is_repeated and node.name in self.nodes:  # for the whole ops that read it
                self.means(node.name, [Meaning(tensor) for tensor in tensors])
        elif node.op in SHAPE_OPS and self._is_replaced(node):
            self.stands_in[node.name] = (
                self._named(node.name, len(tensors)) if node.op == "ShapeN" else [node.name]
            )
            for tensor, name in zip(tensors, self.stands_in[node.name], strict=True):
                self._said[name] = tensor
        else:
            self.node(node.name)
            self.means(node.name, [Meaning(tensor) for tensor in tensors])

    def _named(self, op: str, count: int) -> list[str]:
        """The ops that stand for one, each of them for no other."""
        names = list(self._names.get(op, ()))
        if len({*names} - self._found) < count or len(names) != count:
            raise RewriteError(f"reading a split step: it has not {count} copies of {op!r}")
        self._found.update(names)
        return [self.node(name).name for name in names]

    def _is_replaced(self, node: Any) -> bool:
        """Whether something else says what an op says of a shape, which is known."""
        count = len(self._properties.dtype_of[node.name])
        said = [self._decisions.values.value(f"{node.name}:{i}") for i in range(count)]
        states = self._decisions.state_of_tensor
        reads_parts = any(states[tensor_of(name)] != WHOLE for name in data_inputs(node))
        return reads_parts and all(each is not None for each in said) and self.is_other(node)

    def _read_joint(self, node: Any) -> None:
        """Understands an op that the unsplit step has not."""
        controls = [name for name in node.input if name.startswith("^")]
        self._awaited.update(name[1:] for name in controls)
        if node.op in ("Assert", "NoOp"):
            for name in data_inputs(node):
                Reading.meaning(self, name)
            self.asserts.update({node.name} if node.op == "Assert" else ())
            return
        is_late = any(self.node(name[1:]).op != "Assert" for name in controls)
        if is_late and node.name not in self._said:
            raise RewriteError(f"reading {node.name!r} of the split step: it waits for an op")
        self.means(node.name, self.read(node))

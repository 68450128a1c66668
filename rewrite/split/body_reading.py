"""Reads a shard's function: what every tensor in it is of the function that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.names import data_inputs, op_of, parse_input
from rewrite.pass_base import RewriteError
from rewrite.split.joint_reader import JointReader
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.main_form import MainForm
from rewrite.split.meanings import Meaning, Value, Whole
from rewrite.split.op_view import Split
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.size_arithmetic import NUMBER_OPS, numbers
from rewrite.split.split_body import SplitBody
from rewrite.split.states import WHOLE, Listed, Partial, Sharded, State

_UNKNOWN = -1
"""What a list may say of a dimension of its elements."""


class BodyReading:
    """A shard's function, understood.

    Attributes:
      nodes: {name: NodeDef}, their inputs as in a main graph.
      results: what the function returns, as inputs of a main graph.
    """

    def __init__(
        self,
        split: SplitBody,
        function: Any,
        library: Mapping[str, Any],
        shard: int,
        sizes: Sequence[int],
        own: np.ndarray | None,
    ):
        """Begins and ends.

        Args:
          split: what was decided of the function.
          function: the shard's own one.
          library: all functions.
          shard: whose it is.
          sizes: entries of the batch in each shard.
          own: the shard's numbers, where the function is given them.

        Raises:
          RewriteError: an op makes no sense.
        """
        self.split, self.shard, self.sizes = split, shard, tuple(sizes)
        self._joints = JointReader(sizes, self._whole)
        self._meanings: dict[str, list[Value]] = {}
        self._read_arguments(function, own)
        arguments = [each.name for each in function.signature.input_arg]
        given = dict(zip(arguments, map(op_of, split.body.arguments), strict=False))
        form = MainForm(function, library, given)
        self.nodes, self.results = form.nodes, form.results
        for node in split.body.flat.graph_def.node:
            if node.name not in self._meanings and not self.is_replaced(node):
                self._meanings[node.name] = list(self._made(node))
        for name, node in self.nodes.items():
            if name not in self._meanings:
                self._meanings[name] = self._read(node)

    def value(self, name: str) -> Value:
        """What an input is; raises RewriteError where there is no such tensor, or not yet."""
        source = parse_input(name)
        outputs = self._meanings.get(source.op)
        if outputs is None or not 0 <= source.output < len(outputs):
            raise RewriteError(f"reading {name!r} of a shard's function: it is not there in time")
        return outputs[source.output]

    def number(self, name: str) -> np.ndarray | None:
        """The number that an input is, where that is known."""
        return self._number(self.value(name))

    def is_replaced(self, node: Any) -> bool:
        """Whether something else says what an op says of a shape."""
        if node.op not in SHAPE_OPS | LIST_SHAPE_OPS:
            return False
        here = self.nodes.get(node.name)
        return here is None or here.op != node.op or here.input[:] != node.input[:]

    def _read_arguments(self, function: Any, own: np.ndarray | None) -> None:
        body = self.split.body
        for tensor in body.arguments:
            self._meanings[op_of(tensor)] = [self._of(tensor, self.split.states[tensor])]
        more = len(function.signature.input_arg) - len(body.arguments)
        if more != (own is not None):
            raise RewriteError("reading a shard's function: its arguments are not those it had")
        if own is not None:
            self._meanings[function.signature.input_arg[-1].name] = [own]

    def _of(self, tensor: str, state: State) -> Meaning:
        if state == WHOLE:
            return Meaning(tensor)
        return Meaning(tensor, state, frozenset({self.shard}))

    def _made(self, node: Any) -> list[Value]:
        """What the outputs of an op of the function are."""
        if node.name not in self.nodes:
            raise RewriteError(f"reading a shard's function: {node.name!r} is missing")
        answer = self.split.answers[node.name]
        count = len(self.split.facts.dtype_of[node.name])
        if not isinstance(answer, Split):
            return [Meaning(f"{node.name}:{i}") for i in range(count)]
        made: list[Value] = []
        for index, state in enumerate(answer.outputs):
            meaning = self._of(f"{node.name}:{index}", state)
            if answer.is_mean and isinstance(state, Partial):
                meaning = Meaning(meaning.tensor, state, meaning.shards, is_unweighted=True)
            made.append(meaning)
        return made

    def _read(self, node: Any) -> list[Value]:
        """Understands an op that cuts, weighs or counts."""
        inputs = [self.value(name) for name in data_inputs(node)]
        if len(inputs) < len(node.input):
            raise RewriteError(f"reading {node.name!r} of a shard's function: it waits for an op")
        first = inputs[0] if inputs else None
        if isinstance(first, Meaning):
            if node.op in SHAPE_OPS | LIST_SHAPE_OPS:
                return [self._asked(node, first)]
            if node.op == "Slice":
                return [self._cut(node, first, inputs[1:])]
        known = [self._number(value) for value in inputs]
        if node.op in NUMBER_OPS and all(value is not None for value in known):
            return list(numbers(node, known))  # type: ignore[arg-type]
        return list(self._joints.read(node, inputs))

    def _number(self, value: Value) -> np.ndarray | None:
        if not isinstance(value, Meaning):
            return value
        is_whole = value == Meaning(value.tensor)
        return self.split.facts.value(value.tensor) if is_whole else None

    def _asked(self, node: Any, of: Meaning) -> np.ndarray:
        """What a Shape says of a part, or a list of parts of its elements."""
        import tensorflow as tf

        if node.op in LIST_SHAPE_OPS:
            known = self.split.facts.elements.get(of.tensor)
            shape = None if known is None else known.shape
            element = of.state.element if isinstance(of.state, Listed) else None
            if shape is None or element is None or set(node.attr) != {"shape_type"}:
                raise RewriteError(f"reading {node.name!r} of a shard's function: of what is it?")
            shape = (*shape[: element.axis], _UNKNOWN, *shape[element.axis + 1 :])
            dtype = node.attr["shape_type"].type
        else:
            if set(node.attr) != {"T", "out_type"}:
                raise RewriteError(f"reading {node.name!r} of a shard's function: wrong attributes")
            if node.attr["T"].type != self._whole(of.tensor).dtype or node.op != "Shape":
                raise RewriteError(f"reading {node.name!r} of a shard's function: of what is it?")
            shape, dtype = self._joints.shape(of), node.attr["out_type"].type
        return np.array(shape, tf.as_dtype(dtype).as_numpy_dtype)

    def _cut(self, node: Any, whole: Meaning, span: Sequence[Value]) -> Meaning:
        """A Slice of a whole tensor: the part of this shard."""
        shape, (begin, size) = self._whole(whole.tensor).shape, map(self._number, span)
        types = {"T": self._whole(whole.tensor).dtype, "Index": 3}
        is_right = {key: value.type for key, value in node.attr.items()} == types
        if begin is not None and size is not None and shape is not None and is_right:
            mine, before = self.sizes[self.shard], sum(self.sizes[: self.shard])
            for axis in np.flatnonzero(size != -1):
                state = Sharded(int(axis), 1, int(size[axis]) // mine)
                wanted = np.zeros_like(begin), np.full_like(size, -1)
                wanted[0][axis], wanted[1][axis] = before * state.inner, state.size(mine)
                is_all = shape[axis] == state.size(sum(self.sizes)) and len(shape) == len(begin)
                pairs = zip(wanted, (begin, size), strict=True)
                if (
                    is_all
                    and whole == Meaning(whole.tensor)
                    and all(np.array_equal(one, other) for one, other in pairs)
                ):
                    return self._of(whole.tensor, state)
        raise RewriteError(f"reading {node.name!r} of a shard's function: it cuts no part")

    def _whole(self, tensor: str) -> Whole:
        import tensorflow as tf

        facts = self.split.facts
        return Whole(facts.shape(tensor), tf.as_dtype(facts.dtype(tensor)).as_datatype_enum)

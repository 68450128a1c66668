"""Reads a shard's function: what every tensor in it is of the function that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.op_outputs import output_names
from graphs.names import data_inputs, op_of
from rewrite.pass_base import RewriteError
from rewrite.split.joint_reader import Meaning, Value
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.op_view import Split
from rewrite.split.reading import Reading
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.split_body import SplitBody
from rewrite.split.states import Listed, Sharded

_UNKNOWN = -1
"""What a list may say of a dimension of its elements."""


class BodyReading(Reading):
    """A shard's function, understood; the inputs of its nodes are as in a main graph.

    Attributes:
      results: what the function returns, as inputs of a main graph.
    """

    def __init__(
        self,
        split: SplitBody,
        function: Any,
        library: Mapping[str, Any],
        shard: int,
        sizes: Sequence[int],
        has_numbers: bool,
    ):
        """Begins and ends.

        Args:
          split: what was decided of the function.
          function: the shard's own one.
          library: all functions.
          shard: whose it is.
          sizes: entries of the batch in each shard.
          has_numbers: whether the function is given its shard's numbers.

        Raises:
          RewriteError: an op makes no sense.
        """
        name = function.signature.name
        super().__init__(split.facts, sizes, f"the function {name!r} of shard {shard}", shard)
        self.split, self.shard = split, shard
        self._read_arguments(function, has_numbers)
        arguments = [each.name for each in function.signature.input_arg]
        given = dict(zip(arguments, map(op_of, split.body.arguments), strict=False))
        form = MainForm(function, library, given)
        self.nodes, self.results = form.nodes, form.results
        known = {*given.values(), *arguments[len(given) :]}
        for node in split.body.flat.graph_def.node:
            if node.name not in known and not self.is_replaced(node):
                known.add(self.node(node.name).name)
                answer, count = split.answers[node.name], len(split.facts.dtype_of[node.name])
                if isinstance(answer, Split):
                    self.means(node.name, self.parts(node.name, answer, shard))
                else:
                    self.means(node.name, [Meaning(f"{node.name}:{i}") for i in range(count)])
        for name, node in self.nodes.items():
            if name not in known:
                self.means(name, self.read(node))

    def is_replaced(self, node: Any) -> bool:
        """Whether something else says what an op says of a shape."""
        return node.op in SHAPE_OPS | LIST_SHAPE_OPS and self.is_other(node)

    def _read_arguments(self, function: Any, has_numbers: bool) -> None:
        body = self.split.body
        for tensor in body.arguments:
            self.means(op_of(tensor), [self.part(tensor, self.split.states[tensor], self.shard)])
        more = len(function.signature.input_arg) - len(body.arguments)
        if more != has_numbers:
            raise RewriteError(f"reading {self.where}: its arguments are not those it had")
        if has_numbers:
            numbers = self.numbers_of(self.shard)
            self.means(function.signature.input_arg[-1].name, [numbers])

    def read(self, node: Any) -> Sequence[Value]:
        """What an op is that cuts, weighs or counts."""
        data = data_inputs(node)
        if len(data) < len(node.input):
            raise RewriteError(f"reading {node.name!r} of {self.where}: it waits for an op")
        if node.op in LIST_SHAPE_OPS or node.op == "Slice":
            first, *rest = map(self.meaning, data)
            if isinstance(first, Meaning):
                is_cut = node.op == "Slice"
                return [self._cut(node, first, rest) if is_cut else self._of_elements(node, first)]
        return super().read(node)

    def _of_elements(self, node: Any, of: Meaning) -> np.ndarray:
        """What a list of parts says of the shape of its elements."""
        import tensorflow as tf

        known = self.facts.elements.get(of.tensor)
        shape = None if known is None else known.shape
        element = of.state.element if isinstance(of.state, Listed) else None
        if shape is None or element is None or set(node.attr) != {"shape_type"}:
            raise RewriteError(f"reading {node.name!r} of {self.where}: of what is this?")
        shape = (*shape[: element.axis], _UNKNOWN, *shape[element.axis + 1 :])
        return np.array(shape, tf.as_dtype(node.attr["shape_type"].type).as_numpy_dtype)

    def _cut(self, node: Any, whole: Meaning, span: Sequence[Value]) -> Meaning:
        """A Slice of a whole tensor: the part of this shard."""
        shape, (begin, size) = self._whole(whole.tensor).shape, map(self.number, span)
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
                    return self.part(whole.tensor, state, self.shard)
        raise RewriteError(f"reading {node.name!r} of {self.where}: it cuts no part")


class MainForm:
    """A function's ops and results, with the names that inputs have in a main graph.

    `function_body` goes the other way.

    Attributes:
      nodes: {name: NodeDef}.
      results: what the function returns.
    """

    def __init__(self, function: Any, library: Mapping[str, Any], given: Mapping[str, str]):
        """Begins and ends.

        Args:
          function: a FunctionDef.
          library: all functions.
          given: {argument: the op that stands for it}.
        """
        self._given, self._positions = given, dict[str, list[str]]()
        for node in function.node_def:
            self._positions[node.name] = output_names(node, library)
        self.nodes: dict[str, Any] = {}
        for node in function.node_def:
            new = self.nodes[node.name] = type(node)()
            new.CopyFrom(node)
            new.input[:] = [self._name(name) for name in node.input]
        if len(self.nodes) < len(function.node_def):
            raise RewriteError("reading a shard's function: two of its ops have one name")
        outputs = [each.name for each in function.signature.output_arg]
        if set(function.ret) != set(outputs):
            raise RewriteError("reading a shard's function: it returns something else")
        self.results = [self._name(function.ret[name]) for name in outputs]

    def _name(self, name: str) -> str:
        if name.startswith("^"):
            return name
        op, _, output = name.partition(":")
        if not output:
            return self._given.get(op, op)
        names = self._positions.get(op, [])
        output = output if ":" in output else f"{output}:0"
        if output not in names:
            raise RewriteError(f"reading a shard's function: there is no {name!r}")
        return f"{op}:{names.index(output)}".removesuffix(":0")

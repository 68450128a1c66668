"""Makes the body of a function for one shard, of what was decided of the function's ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from graphs.building.op_outputs import output_names
from graphs.names import data_inputs, op_of, parse_input, tensor_of
from rewrite.pass_base import RewriteError
from rewrite.split.body_shapes import BodyShapes
from rewrite.split.function_body import as_body, output_name
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.node_writer import NodeWriter
from rewrite.split.op_view import Split, attributes_of_copies, type_of_copies
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.shard_shapes import WholeTensor
from rewrite.split.split_body import SplitBody
from rewrite.split.states import WHOLE, Listed, Partial, Sharded, State


class Adapting(Protocol):
    """Gives a copy of an op that runs functions its shard's own ones."""

    def adapt(self, node: Any, answer: Split, shard: int, numbers: str | None = None) -> None:
        """See ShardFunctions.adapt."""


class ShardBody:
    """Adds the ops of one shard's function, one op of the function after the other.

    Every tensor has one name here. One that is whole for all shards can be cut on the spot: the
    shard takes its part. Nothing is joined or summed.
    """

    def __init__(
        self,
        split: SplitBody,
        shard: int,
        writer: NodeWriter,
        shapes: BodyShapes,
        functions: Adapting,
        numbers: str | None,
    ):
        """Begins and ends.

        Args:
          split: the function.
          shard: whose body is made.
          writer: of an empty graph, where the names of the function's ops are taken.
          shapes: how large the shard is.
          functions: makes the functions that the ops of this one run.
          numbers: see BodyShapes; None where all is known beforehand.
        """
        self.split, self.shard = split, shard
        self.writer, self.shapes = writer, shapes
        self._functions, self._numbers = functions, numbers
        self._made: dict[tuple[str, State], str] = {}
        for node in split.body.flat.graph_def.node:
            self._add(node)
        self._results = [
            self._part(tensor, state)
            for tensor, state in zip(split.body.outputs, split.results, strict=True)
        ]

    def nodes_and_results(
        self, arguments: Mapping[str, str], library: Mapping[str, Any]
    ) -> tuple[list[Any], list[str]]:
        """NodeDefs, and what each output of the function is.

        Args:
          arguments: {op that stands for an argument: the argument}.
          library: all functions.
        """
        nodes = as_body(self.writer.graph_def, arguments, library)
        names = {node.name: output_names(node, library) for node in self.writer.graph_def.node}
        results = []
        for tensor in self._results:
            source = parse_input(tensor)
            if source.op in arguments:
                results.append(arguments[source.op])
            else:
                results.append(f"{source.op}:{output_name(names, source.op, source.output)}")
        return nodes, results

    # -- ops -------------------------------------------------------------------------------------

    def _add(self, node: Any) -> None:
        answer = self.split.answers[node.name]
        inputs = [tensor_of(name) for name in data_inputs(node)]
        if isinstance(answer, Split):
            self._add_copy(node, answer, inputs)
        elif node.op in SHAPE_OPS | LIST_SHAPE_OPS and self._is_of_parts(node, inputs):
            self._add_shape(node, inputs)
        else:
            self._copy(node, [self._part(tensor, WHOLE) for tensor in inputs])

    def _add_copy(self, node: Any, answer: Split, inputs: Sequence[str]) -> None:
        mine = [self._part(t, state) for t, state in zip(inputs, answer.inputs, strict=True)]
        for position, entries in answer.shape_inputs.items():
            value = self.split.facts.value(inputs[position])
            assert value is not None
            mine[position] = self.shapes.of_shard(mine[position], value, entries)
        new = self._copy(node, mine, answer)
        self._functions.adapt(new, answer, self.shard, self._numbers)
        for index, state in enumerate(answer.outputs):
            if answer.is_mean and isinstance(state, Partial):
                self._weigh(f"{node.name}:{index}", state)

    def _copy(self, node: Any, inputs: Sequence[str], answer: Split | None = None) -> Any:
        new = self.writer.node(type_of_copies(node, answer), node.name, inputs)
        for key, attr in attributes_of_copies(node, answer).items():
            if key not in ("_class", "_output_shapes"):
                new.attr[key].CopyFrom(attr)
        for index in range(len(self.split.facts.dtype_of[node.name])):
            tensor = f"{node.name}:{index}"
            self._made[tensor, self.split.states[tensor]] = tensor
        return new

    def _is_of_parts(self, node: Any, inputs: Sequence[str]) -> bool:
        """Whether something is known of the shapes of whole tensors that are there in parts."""
        return any(self.split.states[tensor] != WHOLE for tensor in inputs) and all(
            self.split.facts.value(f"{node.name}:{index}") is not None
            for index in range(len(inputs))
        )

    def _add_shape(self, node: Any, inputs: Sequence[str]) -> None:
        for index, tensor in enumerate(inputs):
            output = f"{node.name}:{index}"
            answer, state = self.split.facts.value(output), self.split.states[tensor]
            assert answer is not None
            part = self._part(tensor, state)
            if isinstance(state, Listed):
                state = state.element or WHOLE
            rank = len(self.split.facts.shape(tensor) or ())
            whole = WholeTensor(state, rank, self.split.facts.dtype(tensor), answer)
            own = node.name if index == 0 else self.writer.free_name(f"{node.name}/{index}")
            self._made[output, WHOLE] = self.shapes.of_whole(node, own, part, whole)

    def _weigh(self, tensor: str, state: State) -> None:
        dtype = self.split.facts.dtype(tensor)
        name = f"{op_of(tensor)}/weighted"
        inputs = [tensor, self.shapes.share(dtype)]
        self._made[tensor, state] = self.writer.op("Mul", name, inputs, T=dtype)

    # -- tensors ---------------------------------------------------------------------------------

    def _part(self, tensor: str, state: State) -> str:
        """The shard's own part of a tensor."""
        have, state = self.split.states[tensor], self.split.read_as(tensor, state)
        if (tensor, state) not in self._made:
            if have != WHOLE:
                raise RewriteError(f"splitting a loop: {tensor!r} is {have}, wanted {state}")
            if isinstance(state, Sharded):
                self._made[tensor, state] = self._cut(tensor, state)
            else:
                self._made[tensor, state] = self._term(tensor)
        return self._made[tensor, state]

    def _term(self, tensor: str) -> str:
        """A whole tensor as a term of a sum: the first shard has all of it."""
        whole = self._part(tensor, WHOLE)
        if self.shard == 0:
            return whole
        dtype = self.split.facts.dtype(tensor)
        return self.writer.op("ZerosLike", f"{op_of(tensor)}/none", [whole], T=dtype)

    def _cut(self, tensor: str, state: Sharded) -> str:
        """The shard's slice of a whole tensor."""
        shape = self.split.facts.shape(tensor)
        if shape is None or state.outer > 1:
            raise RewriteError(f"splitting a loop: {tensor!r} can't be cut in its body")
        inputs = [self._part(tensor, WHOLE), *self.shapes.span(state, len(shape))]
        dtype = self.split.facts.dtype(tensor)
        return self.writer.op("Slice", f"{op_of(tensor)}/cut", inputs, T=dtype, Index="int32")

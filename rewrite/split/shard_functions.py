"""Makes the functions that the copies of loops, conditionals and calls run, one for each shard."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from graphs import op_types
from graphs.names import free_name, op_of
from graphs.tensor_protos import shape_proto
from rewrite.split.body_shapes import (
    NUMBERS,
    BodyShapes,
    FixedBodyShapes,
    OpenBodyShapes,
    ShardNumbers,
)
from rewrite.split.function_body import stateful_ops
from rewrite.split.node_writer import NodeWriter
from rewrite.split.op_view import Split
from rewrite.split.shard_body import ShardBody
from rewrite.split.split_body import SplitBody
from rewrite.split.states import Sharded

_DROPPED = frozenset({"api_implements", "api_preferred_device", "forward_function_name"})
_DROPPED |= {"backward_function_name", "_construction_context", "_input_shapes"}
_NUMBERS = "split_numbers"
_INT32 = 3


class ShardFunctions:
    """Makes functions for shards; two shards of one size may share those of a loop or a call.

    A conditional's branches are opened, and an op has one device in all that share its function.

    In a step that takes any batch size each function has one more argument, the shard's numbers.

    Attributes:
      functions: what was made, FunctionDefs.
    """

    def __init__(
        self,
        library: Mapping[str, Any],
        numbers: ShardNumbers,
        batch: int,
        num_shards: int,
        taken: Collection[str] = (),
    ):
        """Begins; `taken` are functions of the model that the library has not."""
        self.functions: list[Any] = []
        self._library = library
        self._numbers, self._batch, self._num_shards = numbers, batch, num_shards
        self._names = {*library, *taken}
        self._made: dict[tuple[bytes, int], str] = {}
        self._is_opened = True  # what is made now

    def adapt(self, node: Any, answer: Split, shard: int, numbers: str | None = None) -> None:
        """Makes a shard's copy of an op run functions of its own, if it runs any.

        Args:
          node: the copy.
          answer: what becomes of the op.
          shard: whose copy it is.
          numbers: of the shard, in the function that the copy stands in.
        """
        if not answer.bodies:
            return
        numbers = numbers or self._numbers.of_shard(shard)
        is_opened = self._is_opened
        self._is_opened = is_opened and node.op in op_types.CONDITIONALS
        for key, body in answer.bodies.items():
            attribute, _, index = key.partition("/")
            returns = attribute == "body"
            name = self._function(body, shard, numbers is not None, returns)
            if index:
                node.attr[attribute].list.func[int(index)].name = name
            else:
                node.attr[attribute].func.name = name
        self._is_opened = is_opened
        if "output_shapes" in node.attr:
            self._set_output_shapes(node, answer, shard, numbers)
        if numbers is not None:
            _add_input(node, len(answer.inputs), numbers)

    def _set_output_shapes(self, node: Any, answer: Split, shard: int, numbers: str | None) -> None:
        shapes = node.attr["output_shapes"].list.shape
        if len(shapes) != len(answer.outputs):
            return
        for shape, state in zip(shapes, answer.outputs, strict=True):
            sizes = [dim.size for dim in shape.dim]
            if isinstance(state, Sharded) and state.axis < len(sizes):
                # What a shard's size is, TensorFlow finds out by itself.
                sizes[state.axis] = -1
                shape.CopyFrom(shape_proto(tuple(sizes)))
        if numbers is not None and node.op in op_types.LOOPS:
            shapes.append(shape_proto((NUMBERS,)))

    def _function(self, split: SplitBody, shard: int, is_open: bool, returns: bool) -> str:
        """The name of a shard's own function."""
        original = self._library[split.body.function]
        new = type(original)()
        new.signature.CopyFrom(original.signature)
        new.signature.name = ""
        new.signature.control_output[:] = []
        for key, value in original.attr.items():
            if key not in _DROPPED:
                new.attr[key].CopyFrom(value)
        arguments = {
            op_of(tensor): each.name
            for tensor, each in zip(split.body.arguments, original.signature.input_arg, strict=True)
        }
        results = [each.name for each in original.signature.output_arg]
        writer = NodeWriter(
            type(split.body.flat.graph_def)(versions=split.body.flat.graph_def.versions),
            (node.name for node in split.body.flat.graph_def.node),
        )
        numbers = None
        if is_open:
            own = writer.free_name(_NUMBERS)
            writer.node("Placeholder", own, [], dtype="int32")
            arguments[own] = _NUMBERS
            new.signature.input_arg.add(name=_NUMBERS, type=_INT32)
            numbers = f"{own}:0"
        body = ShardBody(split, shard, writer, self._shapes(writer, shard, numbers), self, numbers)
        library = {**self._library, **{each.signature.name: each for each in self.functions}}
        nodes, returned = body.nodes_and_results(arguments, library)
        if is_open and returns:
            new.signature.output_arg.add(name=f"{_NUMBERS}_out", type=_INT32)
            results.append(f"{_NUMBERS}_out")
            returned.append(_NUMBERS)
        new.node_def.extend(nodes)
        for name, value in zip(results, returned, strict=True):
            new.ret[name] = value
        for op in stateful_ops(nodes, library):  # what waits for the copy waits for its reads
            new.signature.control_output.append(op)
            new.control_ret[op] = op
        return self._named(new, f"{split.body.function}_shard_{shard}", shard)

    def _shapes(self, writer: NodeWriter, shard: int, numbers: str | None) -> BodyShapes:
        if numbers is not None:
            return OpenBodyShapes(writer, numbers)
        return FixedBodyShapes(writer, self._batch, self._num_shards, shard)

    def _named(self, function: Any, wanted: str, shard: int) -> str:
        content = function.SerializeToString(deterministic=True)
        key = content, shard if self._is_opened else -1
        if key not in self._made:
            wanted = free_name(wanted, self._names)
            self._names.add(wanted)
            self._made[key] = wanted
            function.signature.name = wanted
            self.functions.append(function)
        return self._made[key]


def _add_input(node: Any, position: int, tensor: str) -> None:
    """Adds an int32 behind the tensors that an op hands to its functions."""
    inputs = list(node.input)
    del node.input[:]
    node.input.extend([*inputs[:position], tensor.removesuffix(":0"), *inputs[position:]])
    node.attr["T" if node.op in op_types.LOOPS else "Tin"].list.type.append(_INT32)

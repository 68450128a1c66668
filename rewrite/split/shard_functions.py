"""Makes the functions that the copies of loops, conditionals and calls run, one for each shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs.tensor_protos import shape_proto
from rewrite.split.loops import SplitBody
from rewrite.split.op_view import Split
from rewrite.split.shard_body import ShardBody
from rewrite.split.states import Sharded

_DROPPED = frozenset({"api_implements", "api_preferred_device", "forward_function_name"})
_DROPPED |= {"backward_function_name", "_construction_context"}


class ShardFunctions:
    """Makes functions for shards; two shards of one size share theirs.

    Attributes:
      functions: what was made, FunctionDefs.
    """

    def __init__(self, library: Mapping[str, Any], batch: int, sizes: Sequence[int]):
        self.functions: list[Any] = []
        self._library = library
        self._batch = batch
        self._sizes = sizes
        self._names = set(library)
        self._made: dict[bytes, str] = {}

    def adapt(self, node: Any, answer: Split, shard: int) -> None:
        """Makes a shard's copy of an op run functions of its own."""
        for key, body in answer.bodies.items():
            attribute, _, index = key.partition("/")
            name = self._function(body, shard)
            if index:
                node.attr[attribute].list.func[int(index)].name = name
            else:
                node.attr[attribute].func.name = name
        if "output_shapes" in node.attr:
            self._set_output_shapes(node, answer, shard)

    def _set_output_shapes(self, node: Any, answer: Split, shard: int) -> None:
        shapes = node.attr["output_shapes"].list.shape
        if len(shapes) != len(answer.outputs):
            return
        for index, state in enumerate(answer.outputs):
            shape = shapes[index]
            if isinstance(state, Sharded) and state.axis < len(shape.dim):
                sizes = [dim.size for dim in shape.dim]
                if sizes[state.axis] >= 0:
                    sizes[state.axis] = state.size(self._sizes[shard])
                    shape.CopyFrom(shape_proto(tuple(sizes)))

    def _function(self, split: SplitBody, shard: int) -> str:
        """The name of a shard's own function."""
        original = self._library[split.body.function]
        maker = ShardBody(split, shard, self._batch, self._sizes, self)
        new = type(original)()
        new.signature.CopyFrom(original.signature)
        new.signature.name = ""
        for key, value in original.attr.items():
            if key not in _DROPPED:
                new.attr[key].CopyFrom(value)
        arguments = [each.name for each in original.signature.input_arg]
        results = [each.name for each in original.signature.output_arg]
        all_functions = {**self._library, **{f.signature.name: f for f in self.functions}}
        nodes, returned = maker.nodes_and_results(arguments, all_functions)
        new.node_def.extend(nodes)
        for name, value in zip(results, returned, strict=True):
            new.ret[name] = value
        content = new.SerializeToString(deterministic=True)
        if content not in self._made:
            name = f"{split.body.function}_shard_{shard}"
            while name in self._names:
                name += "_"
            self._names.add(name)
            self._made[content] = name
            new.signature.name = name
            self.functions.append(new)
        return self._made[content]

"""Makes the body of a function for one shard, of what was decided of the function's ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphs.names import data_inputs, op_of, parse_input, with_index
from rewrite.pass_base import RewriteError
from rewrite.split.function_body import as_body, output_name, output_names
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.loops import SplitBody
from rewrite.split.op_view import Split
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.states import WHOLE, Partial, Sharded, State

if TYPE_CHECKING:
    from rewrite.split.shard_functions import ShardFunctions


class ShardBody:
    """Adds the ops of one shard's function, one op of the function after the other.

    Every tensor has one name here. One that is whole for all shards can be cut on the spot: the
    shard takes its part. Nothing is joined or summed.
    """

    def __init__(
        self,
        split: SplitBody,
        shard: int,
        batch: int,
        sizes: Sequence[int],
        functions: ShardFunctions,
    ):
        self.split = split
        self.shard = shard
        self.batch = batch
        self.sizes = sizes
        self.functions = functions
        graph_def = split.body.flat.graph_def
        self.graph_def = type(graph_def)(versions=graph_def.versions)
        self._made: dict[tuple[str, State], str] = {}
        self._names = {node.name for node in graph_def.node}
        for node in graph_def.node:
            self._add(node)
        self._results = [
            self._part(tensor, state)
            for tensor, state in zip(split.body.outputs, split.results, strict=True)
        ]

    def nodes_and_results(
        self, arguments: Sequence[str], library: Mapping[str, Any]
    ) -> tuple[list[Any], list[str]]:
        """NodeDefs, and what each output of the function is.

        Args:
          arguments: the function's names for its arguments.
          library: all functions.
        """
        argument_of = {
            op_of(tensor): name
            for tensor, name in zip(self.split.body.arguments, arguments, strict=True)
        }
        nodes = as_body(self.graph_def, argument_of, library)
        names = output_names(self.graph_def, library)
        results = []
        for tensor in self._results:
            op, _, index = tensor.partition(":")
            results.append(
                argument_of[op]
                if op in argument_of
                else f"{op}:{output_name(names, op, int(index))}"
            )
        return nodes, results

    # -- ops -------------------------------------------------------------------------------------

    def _add(self, node: Any) -> None:
        answer = self.split.answers[node.name]
        inputs = [_tensor(name) for name in data_inputs(node)]
        if isinstance(answer, Split):
            self._add_copy(node, answer, inputs)
        elif node.op in SHAPE_OPS | LIST_SHAPE_OPS and self._add_known(node):
            pass
        else:
            self._copy(node, [self._part(tensor, WHOLE) for tensor in inputs])

    def _add_copy(self, node: Any, answer: Split, inputs: Sequence[str]) -> None:
        mine = [self._part(t, state) for t, state in zip(inputs, answer.inputs, strict=True)]
        for position, entries in answer.shape_inputs.items():
            mine[position] = self._shard_shape(inputs[position], entries)
        new = self._copy(node, mine)
        for key, value in answer.attrs.items():
            new.attr[key].CopyFrom(value)
        self.functions.adapt(new, answer, self.shard)
        for index, state in enumerate(answer.outputs):
            if answer.is_mean and isinstance(state, Partial):
                self._weigh(f"{node.name}:{index}", state)

    def _copy(self, node: Any, inputs: Sequence[str]) -> Any:
        new = self.graph_def.node.add()
        new.CopyFrom(node)
        new.device = ""
        new.attr.pop("_class", None)
        new.attr.pop("_output_shapes", None)
        del new.input[:]
        new.input.extend(inputs)
        for index in range(len(self.split.facts.dtype_of[node.name])):
            tensor = f"{node.name}:{index}"
            self._made[tensor, self.split.states[tensor]] = tensor
        return new

    def _add_known(self, node: Any) -> bool:
        """Makes constants of what is known before the run; whether all of it is."""
        count = len(self.split.facts.dtype_of[node.name])
        values = [self.split.facts.value(f"{node.name}:{index}") for index in range(count)]
        if any(value is None for value in values):
            return False
        for index, value in enumerate(values):
            name = node.name if count == 1 else self._name(f"{node.name}/{index}")
            self._made[f"{node.name}:{index}", WHOLE] = self._const(name, value)
        return True

    def _weigh(self, tensor: str, state: State) -> None:
        dtype = self.split.facts.dtype(tensor)
        share = np.array(self.sizes[self.shard] / self.batch).astype(_numpy_dtype(dtype))
        name = self._name(f"{op_of(tensor)}/weighted")
        new = self._node("Mul", name, [tensor, self._const(self._name(f"{name}/share"), share)])
        _set_type(new, "T", dtype)
        self._made[tensor, state] = f"{name}:0"

    def _shard_shape(self, tensor: str, entries: Mapping[int, Sharded]) -> str:
        value = self.split.facts.value(tensor)
        if value is None:
            raise RewriteError(f"splitting {tensor!r} of a loop: a size is not known before")
        new = np.array(value)
        flat = new.reshape(-1)
        for entry, state in entries.items():
            if flat[entry] != -1:
                flat[entry] = state.size(self.sizes[self.shard])
        return self._const(self._name(f"{op_of(tensor)}/shard"), new)

    # -- tensors ---------------------------------------------------------------------------------

    def _part(self, tensor: str, state: State) -> str:
        """The shard's own part of a tensor."""
        have = self.split.states[tensor]
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
        if self.shard == 0:
            return self._part(tensor, WHOLE)
        name = self._name(f"{op_of(tensor)}/none")
        new = self._node("ZerosLike", name, [self._part(tensor, WHOLE)])
        _set_type(new, "T", self.split.facts.dtype(tensor))
        return f"{name}:0"

    def _cut(self, tensor: str, state: Sharded) -> str:
        """The shard's slice of a whole tensor."""
        dtype, shape = self.split.facts.dtype(tensor), self.split.facts.shape(tensor)
        assert shape is not None
        source, axis, rank = self._part(tensor, WHOLE), state.axis, len(shape)
        if state.outer > 1:
            apart = [*shape[:axis], state.outer, self.batch * state.inner, *shape[axis + 1 :]]
            source = self._reshaped(tensor, source, apart, dtype)
            axis, rank = axis + 1, rank + 1
        begin, size = [0] * rank, [-1] * rank
        begin[axis] = sum(self.sizes[: self.shard]) * state.inner
        size[axis] = self.sizes[self.shard] * state.inner
        name = self._name(f"{op_of(tensor)}/cut")
        consts = [
            self._const(self._name(f"{name}/{what}"), np.array(value, np.int32))
            for what, value in (("begin", begin), ("size", size))
        ]
        new = self._node("Slice", name, [source, *consts])
        _set_type(new, "T", dtype)
        _set_type(new, "Index", np.dtype(np.int32))
        if state.outer == 1:
            return f"{name}:0"
        merged = [*shape[: state.axis], -1, *shape[state.axis + 1 :]]
        return self._reshaped(tensor, f"{name}:0", merged, dtype)

    def _reshaped(self, tensor: str, source: str, shape: Sequence[int], dtype: str) -> str:
        name = self._name(f"{op_of(tensor)}/reshaped")
        const = self._const(self._name(f"{name}/shape"), np.array(shape, np.int32))
        new = self._node("Reshape", name, [source, const])
        _set_type(new, "T", dtype)
        _set_type(new, "Tshape", np.dtype(np.int32))
        return f"{name}:0"

    # -- nodes -----------------------------------------------------------------------------------

    def _node(self, op: str, name: str, inputs: Sequence[str]) -> Any:
        new = self.graph_def.node.add(op=op, name=name)
        new.input.extend(inputs)
        return new

    def _const(self, name: str, value: np.ndarray) -> str:
        import tensorflow as tf

        new = self._node("Const", name, [])
        new.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        new.attr["dtype"].type = new.attr["value"].tensor.dtype
        return f"{name}:0"

    def _name(self, wanted: str) -> str:
        while wanted in self._names:
            wanted += "_"
        self._names.add(wanted)
        return wanted


def _tensor(name: str) -> str:
    return with_index(parse_input(name).tensor)


def _numpy_dtype(dtype: str) -> Any:
    import tensorflow as tf

    return tf.as_dtype(dtype).as_numpy_dtype


def _set_type(node: Any, attr: str, dtype: Any) -> None:
    import tensorflow as tf

    node.attr[attr].type = tf.as_dtype(dtype).as_datatype_enum

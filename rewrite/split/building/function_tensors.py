"""The tensors of the function that a shard runs: whole, or the shard's own part."""

from collections.abc import Sequence

from graphs.names import op_of, tensor_of
from graphs.protos import DType, NodeDef, Shape
from rewrite.pass_base import RewriteError
from rewrite.split.building.function_shapes import FunctionShapes
from rewrite.split.decision import DecidedFunction
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import WHOLE, Sharded, State


class FunctionTensors:
    """Finds each tensor of a function in a shard's one, in the form that an op wants.

    One that is whole for all shards can be cut on the spot: the shard takes its part. Nothing is
    joined or summed.
    """

    def __init__(
        self, writer: NodeWriter, shapes: FunctionShapes, decided: DecidedFunction, shard: int
    ):
        self._writer, self._shapes, self._decided, self._shard = writer, shapes, decided, shard
        self._made: dict[tuple[str, State], str] = {}

    def set_whole(self, tensor: str, name: str) -> None:
        """Says where an op's output is; an argument of the function may be the shard's part."""
        self._made[tensor, self._decided.state_of_tensor[tensor]] = name

    def set_parts(self, tensor: str, state: State, parts: Sequence[str]) -> None:
        """Says where the shard's part of a tensor is."""
        [self._made[tensor, state]] = parts

    def whole(self, name: str) -> str:
        """The name of a whole tensor."""
        return self.parts(name, WHOLE)[0]

    def parts(self, name: str, state: State) -> Sequence[str]:
        """The name of what the shard's copy reads, alone in a list."""
        tensor = tensor_of(name)
        have, state = self._decided.state_of_tensor[tensor], self._decided.read_as(tensor, state)
        if (tensor, state) not in self._made:
            if have != WHOLE:
                raise RewriteError(f"splitting a loop: {tensor!r} is {have}, wanted {state}")
            if isinstance(state, Sharded):
                self._made[tensor, state] = self._cut(tensor, state)
            else:
                self._made[tensor, state] = self._term(tensor)
        return [self._made[tensor, state]]

    def as_wanted(self, node: NodeDef, inputs: list[str]) -> list[str]:
        """What an op reads, as it is."""
        return inputs

    def in_every_run(self, tensor: str, number: DType) -> tuple[Shape, str]:
        """Nothing: how large a tensor is, only the shard's part of it says."""
        return None, ""

    def _term(self, tensor: str) -> str:
        """A whole tensor as a term of a sum: the first shard has all of it."""
        whole = self.whole(tensor)
        if self._shard == 0:
            return whole
        dtype = self._decided.facts.dtype(tensor)
        return self._writer.op("ZerosLike", f"{op_of(tensor)}/none", [whole], T=dtype)

    def _cut(self, tensor: str, state: Sharded) -> str:
        """The shard's slice of a whole tensor."""
        shape = self._decided.facts.shape(tensor)
        if shape is None or state.outer > 1:
            raise RewriteError(f"splitting a loop: {tensor!r} can't be cut in its body")
        inputs = [self.whole(tensor), *self._shapes.span(state, len(shape), self._shard)]
        dtype = self._decided.facts.dtype(tensor)
        return self._writer.op("Slice", f"{op_of(tensor)}/cut", inputs, T=dtype, Index="int32")

"""The tensors of a split step: whole, or in parts that are joined, combined and cut where asked."""

from collections.abc import Sequence

import numpy as np

from graphs.flat_graph import FlatGraph
from graphs.names import op_of, tensor_of
from rewrite.split.building.collectives import (
    BLOCK_BYTES,
    FIRST_AT_ONCE,
    FIRST_BLOCK_BYTES,
    MOST_AT_ONCE,
    AcrossShards,
    Home,
    Homes,
    Way,
)
from rewrite.split.building.shard_shapes import ShardShapes
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import MOST_BYTES
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import WHOLE, Partial, Sharded, State, shard_sizes

MOST_COPIED = 1 << 23
"""An input that holds more is sent in parts, not whole to each host."""


class StepTensors:
    """Finds each tensor of the unsplit step in the split one, in the form that an op wants.

    Attributes:
      counts: {"join", "sum", "cut": how many tensors were}.
    """

    def __init__(
        self,
        writer: NodeWriter,
        shapes: ShardShapes,
        decisions: Decisions,
        num_shards: int,
        flat: FlatGraph,
    ):
        self.counts = {"join": 0, "sum": 0, "cut": 0}
        self._writer, self._shapes, self._properties = writer, shapes, decisions.properties
        self._state_of_tensor = decisions.state_of_tensor
        self._inputs = decisions.axis_of_feed
        self._across = AcrossShards(writer, decisions)
        self._homes = Homes(flat, self._across.ring)
        self._is_open = decisions.is_open
        self._num_shards = num_shards
        self._parts: dict[tuple[str, State], list[str]] = {}
        self._whole: dict[str, str] = {}

    def set_whole(self, tensor: str, name: str) -> None:
        """Says where a whole tensor is."""
        self._whole[tensor] = name

    def set_parts(self, tensor: str, state: State, parts: Sequence[str]) -> None:
        """Says where the parts of a tensor are."""
        self._parts[tensor, state] = list(parts)

    def whole(self, name: str) -> str:
        """The name of the whole tensor; its parts are joined or combined once."""
        tensor = tensor_of(name)
        if tensor not in self._whole:
            state = self._state_of_tensor[tensor]
            if state == WHOLE:  # it comes later, and closes a loop of TensorFlow 1
                return tensor
            parts = self._parts[tensor, state]
            if isinstance(state, Sharded):
                self._whole[tensor] = self._joined(tensor, state, parts)
            else:
                assert isinstance(state, Partial)
                self.counts["sum"] += 1
                self._whole[tensor] = self._combined(tensor, state, parts)
        return self._whole[tensor]

    def parts(self, name: str, state: State) -> Sequence[str]:
        """The name of what each shard's copy reads."""
        tensor = tensor_of(name)
        if state == WHOLE:
            return self._whole_for_each(tensor)
        if (tensor, state) not in self._parts:
            whole = self.whole(name)
            if isinstance(state, Partial):
                self._parts[tensor, state] = self._terms(tensor, whole)
            else:
                assert isinstance(state, Sharded), f"{tensor} is not {state}"
                self._parts[tensor, state] = self._cut(tensor, state, whole)
        return self._parts[tensor, state]

    def _whole_for_each(self, tensor: str) -> Sequence[str]:
        """The whole tensor for each shard; each sums small terms for itself."""
        own = self._state_of_tensor[tensor]
        if (tensor, WHOLE) not in self._parts:
            if isinstance(own, Partial) and not self._is_large(tensor):
                self.counts["sum"] += tensor not in self._whole
                names = self._combined_for_each(tensor, own)
                self._whole.setdefault(tensor, names[0])
            else:
                names = self._handed_on(tensor)
            self._parts[tensor, WHOLE] = names
        return self._parts[tensor, WHOLE]

    def _handed_on(self, tensor: str) -> list[str]:
        whole, way = self.whole(tensor), None
        if self._is_large(tensor) and self._across.ring:
            home = self._homes.of_read(op_of(tensor), self._properties.num_bytes(tensor))
            way = self._way(tensor, home)
        name, dtype = _named(tensor, "relayed"), self.dtype(tensor)
        return self._across.handed_on(whole, name, dtype, self._num_shards, way)

    def _is_large(self, tensor: str) -> bool:
        """Whether it takes longer to send than a message takes to arrive."""
        return self._properties.num_bytes(tensor) > MOST_BYTES

    def _way(self, tensor: str, home: Home) -> Way:
        """How a large tensor goes round: in blocks of rows where it holds much.

        Only in a step of one batch size: how many rows there are might follow from it.
        """
        num_bytes, shape = self._properties.num_bytes(tensor), self.shape(tensor)
        if self._is_open or not shape:
            return Way(home.shard)
        block_bytes = num_bytes
        if num_bytes > MOST_AT_ONCE:
            block_bytes = BLOCK_BYTES
        elif home.is_first and num_bytes > FIRST_AT_ONCE:
            block_bytes = FIRST_BLOCK_BYTES
        count = min(-(-num_bytes // block_bytes), shape[0])
        count -= count == self._num_shards  # so that nobody takes a block for a shard's part
        return Way(home.shard, shard_sizes(shape[0], count) if count > 1 else ())

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Of the whole tensor, for the batch size that the step is placed for."""
        shape = self._properties.shape(tensor)
        assert shape is not None
        return shape

    def dtype(self, tensor: str) -> str:
        """Name of its dtype."""
        return self._properties.dtype(tensor)

    def _joined(self, tensor: str, state: Sharded, parts: Sequence[str]) -> str:
        self.counts["join"] += 1
        axis, dtype, shape = state.axis, self.dtype(tensor), self.shape(tensor)
        if state.outer > 1:
            parts = [
                self._writer.reshape(_named(tensor, "joined/apart"), p, _apart(shape, state), dtype)
                for p in parts
            ]
            axis += 1
        name = self._writer.concat(_named(tensor, "joined"), parts, axis, dtype)
        if state.outer == 1:
            return name
        whole = _named(tensor, "joined/whole")
        return self._writer.reshape(whole, name, _merged(shape, state), dtype)

    def _combined(self, tensor: str, state: Partial, parts: Sequence[str]) -> str:
        name = _named_combined(tensor, state)
        is_large, way = self._is_large(tensor), None
        if is_large and self._across.ring:
            way = self._way(tensor, self._homes.of_sum(op_of(tensor)))
        dtype = self.dtype(tensor)
        return self._across.combined(state.combine, name, parts, dtype, is_large, way)

    def _combined_for_each(self, tensor: str, state: Partial) -> list[str]:
        """A small partial tensor, combined on each shard; between hosts once on each."""
        parts, name = self._parts[tensor, state], _named_combined(tensor, state)
        dtype = self.dtype(tensor)
        if state.combine == "sum" and len(self._across.ring) > 1:
            return self._across.summed_on_each_host(name, parts, dtype)
        return [
            self._across.combined(state.combine, f"{name}/shard_{shard}", parts, dtype, False, None)
            for shard in range(self._num_shards)
        ]

    def _terms(self, tensor: str, whole: str) -> list[str]:
        """A whole tensor as terms of a sum: the first shard has all of it."""
        name, dtype = _named(tensor, "none"), self.dtype(tensor)
        zeros = [
            self._writer.op("ZerosLike", f"{name}/shard_{shard}", [whole], T=dtype)
            for shard in range(1, self._num_shards)
        ]
        return [whole, *zeros]

    def _cut(self, tensor: str, state: Sharded, whole: str) -> list[str]:
        self.counts["cut"] += 1
        axis, dtype, shape = state.axis, self.dtype(tensor), self.shape(tensor)
        if state.outer > 1:
            apart = _named(tensor, "cut/apart")
            whole = self._writer.reshape(apart, whole, _apart(shape, state), dtype)
            axis += 1
        name = _named(tensor, "cut")
        axis_const = self._writer.shared_const(np.array(axis, np.int32))
        sizes = self._shapes.cut_along(state, whole, dtype)
        cut_of: dict[str, list[str]] = {}
        for each in dict.fromkeys(wholes := self._wholes_to_cut(tensor, state, whole)):
            own = f"{name}/part_{len(cut_of)}" if cut_of else name
            cut_of[each] = self._writer.split(own, each, sizes, axis_const, self._num_shards, dtype)
        parts = [cut_of[each][shard] for shard, each in enumerate(wholes)]
        if state.outer == 1:
            return parts
        part = _named(tensor, "cut/part")
        return [self._writer.reshape(part, p, _merged(shape, state), dtype) for p in parts]

    def _wholes_to_cut(self, tensor: str, state: Sharded, whole: str) -> list[str]:
        """What each shard's part is cut from: where an input takes little to send, its host's copy.

        It leaves before all else does. Parts that are cut first would wait behind the weights that
        are sent meanwhile.
        """
        is_sent = (
            self._across.ring and MOST_BYTES < self._properties.num_bytes(tensor) <= MOST_COPIED
        )
        is_input = tensor in self._inputs and state.outer == 1
        name, way = _named(tensor, "relayed"), Way(home=0) if is_sent and is_input else None
        return self._across.handed_on(whole, name, self.dtype(tensor), self._num_shards, way)


def _apart(shape: Sequence[int], state: Sharded) -> list[int]:
    """The shape with the blocks outside of the batch in a dimension of their own."""
    return [*shape[: state.axis], state.outer, -1, *shape[state.axis + 1 :]]


def _merged(shape: Sequence[int], state: Sharded) -> list[int]:
    """The shape, however long the batch's dimension is."""
    return [*shape[: state.axis], -1, *shape[state.axis + 1 :]]


def _named(tensor: str, what: str) -> str:
    op, _, index = tensor.partition(":")
    return f"{op}/{what}" if index == "0" else f"{op}/{what}_{index}"


def _named_combined(tensor: str, state: Partial) -> str:
    return _named(tensor, "summed" if state.combine == "sum" else state.combine)

"""The tensors of a split step: whole, or in parts that are joined, combined and cut where asked."""

from collections.abc import Sequence

import numpy as np

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input, source_of, tensor_of
from graphs.protos import DType, NodeDef, Shape
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
from rewrite.split.building.function_shapes import StepShapes
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import MOST_BYTES, NORMS
from rewrite.split.effects import has_effect
from rewrite.split.node_writer import NodeWriter, of_known_width, wants_known_width
from rewrite.split.states import WHOLE, Partial, Sharded, State, shard_sizes

_UNARY = {op for op, which in op_types.TAKES_OVER.items() if which == (0, (0,))}
_OF_ONE_SHAPE = (op_types.SAME | _UNARY) - NORMS
"""Ops whose one output is as large as their input 0, however large that is."""
_SIZES = {"Reshape": 1, "BroadcastTo": 1, "Fill": 0}
"""{op: the input that says how large its output is}."""
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
        shapes: StepShapes,
        decisions: Decisions,
        num_shards: int,
        flat: FlatGraph,
    ):
        self.counts = {"join": 0, "sum": 0, "cut": 0}
        self._writer, self._shapes, self._properties = writer, shapes, decisions.properties
        self._state_of_tensor, self._decisions = decisions.state_of_tensor, decisions
        self._inputs = decisions.axis_of_feed
        self._across = AcrossShards(writer, decisions)
        self._homes = Homes(flat, self._across.ring)
        self._is_open = decisions.is_open
        self._num_shards = num_shards
        self._parts: dict[tuple[str, State], list[str]] = {}
        self._whole: dict[str, str] = {}
        fed = {op_of(spec.tensor) for spec in flat.feeds}
        self._nodes = flat.nodes
        self._not_fed = {name: node for name, node in flat.nodes.items() if name not in fed}
        self._after_effects = _after_effects(flat)

    def set_whole(self, tensor: str, name: str) -> None:
        """Says where a whole tensor is; an input that holds the batch is cut at once."""
        self._whole[tensor] = name
        if tensor in self._inputs:
            self.parts(tensor, self._state_of_tensor[tensor])

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

    def as_wanted(self, node: NodeDef, inputs: list[str]) -> list[str]:
        """What an op reads, or a copy of it: of input 0 TensorFlow knows as much as it has to."""
        if not wants_known_width(node, self._known, self._nodes):
            return inputs
        tensor = tensor_of(data_inputs(node)[0])
        known = of_known_width(self._writer, inputs[0], self.shape(tensor), self.dtype(tensor))
        return [known, *inputs[1:]]

    def in_every_run(self, tensor: str, number: DType) -> tuple[Shape, str]:
        """The shape of a whole tensor, as each run has it, and what holds its sizes, if any."""
        if op_of(tensor) in self._after_effects:
            return None, ""
        return self._decisions.shape_of_any(tensor), self._sizes_of(tensor, number)

    def _sizes_of(self, tensor: str, number: DType) -> str:
        """The whole tensor that says how large this one is made; empty for none of that type."""
        made = self._not_fed.get(op_of(source_of(tensor, self._not_fed, _OF_ONE_SHAPE)))
        if made is None or made.op not in _SIZES:
            return ""
        sizes = tensor_of(data_inputs(made)[_SIZES[made.op]])
        value, is_whole = self._known(sizes), self._state_of_tensor[sizes] == WHOLE
        is_said = value is not None and value.dtype == number and value.min(initial=0) >= 0
        return self.whole(sizes) if is_whole and is_said else ""

    def _known(self, name: str) -> np.ndarray | None:
        return self._decisions.values.value(tensor_of(name))

    def _joined(self, tensor: str, state: Sharded, parts: Sequence[str]) -> str:
        self.counts["join"] += 1
        axis, dtype = state.axis, self.dtype(tensor)
        if state.outer > 1:
            apart = self._apart(tensor, state, self._num_shards)
            parts = [
                self._writer.reshape(_named(tensor, "joined/apart"), part, apart, dtype)
                for part in parts
            ]
            axis += 1
        name = self._writer.concat(_named(tensor, "joined"), parts, axis, dtype)
        if state.outer == 1:
            return name
        whole = _named(tensor, "joined/whole")
        return self._writer.reshape(whole, name, self._merged(tensor, state), dtype)

    def _combined(self, tensor: str, state: Partial, parts: Sequence[str]) -> str:
        name = _named_combined(tensor, state)
        is_large, way = self._is_large(tensor), None
        if is_large and self._across.ring:
            way = self._way(tensor, self._homes.of_sum(op_of(tensor)))
        return self._across.combined(state.combine, name, parts, self.dtype(tensor), is_large, way)

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
        axis, dtype = state.axis, self.dtype(tensor)
        if state.outer > 1:
            apart = _named(tensor, "cut/apart")
            whole = self._writer.reshape(apart, whole, self._apart(tensor, state), dtype)
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
        merged = self._merged(tensor, state, self._num_shards)
        return [self._writer.reshape(part, p, merged, dtype) for p in parts]

    def _apart(self, tensor: str, state: Sharded, count: int = 1) -> list[int]:
        """The shape of one of `count` parts, with its blocks in a dimension of their own."""
        shape, axis = self._merged(tensor, state, count), state.axis
        block = shape[axis] // state.outer  # -1 of -1, too
        return [*shape[:axis], state.outer, block, *shape[axis + 1 :]]

    def _merged(self, tensor: str, state: Sharded, count: int = 1) -> list[int]:
        """The shape of one of `count` parts; -1 where it is of any size.

        That is the batch, however long it is; or what is fed to a step whose weights are in pieces,
        all of one size.
        """
        known = self._decisions.shape_of_any(tensor) if self._decisions.pieces else None
        if known is not None and -1 in known:
            shape = [*known]
            shape[state.axis] //= count
        else:
            shape = [*self.shape(tensor)]
            shape[state.axis] = -1
        return shape

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


def _named(tensor: str, what: str) -> str:
    op, _, index = tensor.partition(":")
    return f"{op}/{what}" if index == "0" else f"{op}/{what}_{index}"


def _named_combined(tensor: str, state: Partial) -> str:
    return _named(tensor, "summed" if state.combine == "sum" else state.combine)


def _after_effects(flat: FlatGraph) -> frozenset[str]:
    """Ops for which something with an effect runs, as it does for who asks how large they are."""
    after = {node.name for node in flat.graph_def.node if has_effect(node, flat.library)}
    num_known = -1
    while num_known < len(after):  # what closes a v1 loop comes later in the graph
        num_known = len(after)
        for node in flat.graph_def.node:
            if not after.isdisjoint(parse_input(name).op for name in node.input):
                after.add(node.name)
    return frozenset(after)

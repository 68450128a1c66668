"""Makes the graph of a split step from what was decided of each op."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input, with_index
from rewrite.pass_base import RewriteError
from rewrite.split.decide import Decisions
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.op_view import Split
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.shard_functions import ShardFunctions
from rewrite.split.states import WHOLE, Partial, Sharded, State, shard_sizes

_COMBINE_OPS = {"max": "Maximum", "min": "Minimum", "prod": "Mul", "all": "LogicalAnd",
                "any": "LogicalOr"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SplitStep:
    """A split step.

    Attributes:
      graph_def: its ops, named as in the unsplit one; the copy of a/b for shard m is a/b/shard_m.
      fetches: what to fetch instead of the unsplit step's fetches, in their order.
      origin_of: {op of the split step: op of the unsplit one that it stands for}; ops that join,
        sum or cut a tensor stand for the op that made it.
      num_joins: tensors whose parts are joined.
      num_sums: tensors whose terms are combined.
      num_cuts: whole tensors that are cut into parts.
    """

    graph_def: Any
    fetches: Sequence[str]
    origin_of: Mapping[str, str]
    num_joins: int
    num_sums: int
    num_cuts: int


def build_step(
    flat: FlatGraph, properties: TensorProperties, decisions: Decisions, num_shards: int
) -> SplitStep:
    """The split step.

    Args:
      flat: the unsplit step with its calls opened.
      properties: of its tensors.
      decisions: what becomes of each op.
      num_shards: M, at least 2 and at most the batch size.
    """
    builder = _Builder(flat, properties, decisions, num_shards)
    for node in flat.graph_def.node:
        builder.add(node)
    fetches = [builder.fetch(fetch) for fetch in flat.fetches]
    builder.graph_def.library.CopyFrom(flat.graph_def.library)
    builder.graph_def.library.function.extend(builder.functions.functions)
    counts = builder.counts
    return SplitStep(
        builder.graph_def, fetches, builder.origin_of, counts["join"], counts["sum"], counts["cut"]
    )


class _Builder:
    """Adds the ops of a split step, one unsplit op after the other."""

    def __init__(
        self,
        flat: FlatGraph,
        properties: TensorProperties,
        decisions: Decisions,
        num_shards: int,
    ):
        self.flat = flat
        self.properties = decisions.properties
        self.decisions = decisions
        self.sizes = shard_sizes(decisions.batch, num_shards)
        self.functions = ShardFunctions(flat.library, decisions.batch, self.sizes)
        self.graph_def = type(flat.graph_def)(versions=flat.graph_def.versions)
        self.origin_of: dict[str, str] = {}
        self.counts = {"join": 0, "sum": 0, "cut": 0}
        self._origin = ""
        self._names = {node.name for node in flat.graph_def.node}
        self._parts: dict[tuple[str, State], list[str]] = {}
        self._whole: dict[str, str] = {}
        self._copies: dict[str, list[str]] = {}
        self._consts: dict[tuple[Any, ...], str] = {}

    # -- ops -------------------------------------------------------------------------------------

    def add(self, node: Any) -> None:
        """Adds what an unsplit op becomes."""
        self._origin = node.name
        answer = self.decisions.answer_of_op[node.name]
        if isinstance(answer, Split):
            self._add_copies(node, answer)
        elif node.op in SHAPE_OPS | LIST_SHAPE_OPS and self._reads_parts(node) and self._is_known(node):
            self._add_shape(node)
        else:
            self._add_whole(node)

    def _add_whole(self, node: Any) -> None:
        inputs = [self.whole(name) for name in _data(node)]
        new = self._node(node.op, node.name, [*inputs, *self._controls(node, None)])
        self._copy_attrs(node, new, None)
        for index in range(len(self.properties.dtype_of[node.name])):
            tensor = f"{node.name}:{index}"
            self._whole[tensor] = tensor
            state = self.decisions.state_of_tensor[tensor]
            if state != WHOLE:  # a fed tensor
                self._cut(tensor, state)

    def _add_copies(self, node: Any, answer: Split) -> None:
        inputs = [self.parts(name, s) for name, s in zip(_data(node), answer.inputs, strict=True)]
        names = []
        for shard in range(len(self.sizes)):
            mine = [row[shard] for row in inputs]
            for position, entries in answer.shape_inputs.items():
                mine[position] = self._shard_shape(node, position, entries, shard)
            name = self._name(f"{node.name}/shard_{shard}")
            new = self._node(node.op, name, [*mine, *self._controls(node, shard)])
            self._copy_attrs(node, new, shard)
            for key, value in answer.attrs.items():
                new.attr[key].CopyFrom(value)
            self.functions.adapt(new, answer, shard)
            names.append(name)
        self._copies[node.name] = names
        for index, state in enumerate(answer.outputs):
            tensor = f"{node.name}:{index}"
            if state == WHOLE:
                self._whole[tensor] = f"{names[0]}:{index}"
                continue
            parts = [f"{name}:{index}" for name in names]
            if answer.is_mean and isinstance(state, Partial):
                parts = [self._weighted(tensor, part, shard) for shard, part in enumerate(parts)]
            self._parts[tensor, state] = parts

    def _add_shape(self, node: Any) -> None:
        """The whole tensor's shape, which is known, though the tensor itself is in parts."""
        for index in range(len(_data(node))):
            tensor = f"{node.name}:{index}"
            value = self.known(tensor)
            assert value is not None
            name = node.name if node.op != "ShapeN" else self._name(f"{node.name}/{index}")
            self._whole[tensor] = self._const(name, value) + ":0"
        if node.op == "ShapeN":
            self._copies[node.name] = [self._whole[f"{node.name}:0"].removesuffix(":0")]

    def _is_known(self, node: Any) -> bool:
        count = len(self.properties.dtype_of[node.name])
        return all(self.known(f"{node.name}:{i}") is not None for i in range(count))

    def _reads_parts(self, node: Any) -> bool:
        return any(self.decisions.state_of_tensor[_tensor(n)] != WHOLE for n in _data(node))

    def _weighted(self, tensor: str, part: str, shard: int) -> str:
        """The average over a part, times the part's share of the batch."""
        dtype = self._dtype(tensor)
        value = np.array(self.sizes[shard] / self.decisions.batch).astype(_numpy_dtype(dtype))
        share = self._shared_const(value, shard)
        name = self._name(f"{part.partition(':')[0]}/weighted")
        new = self._node("Mul", name, [part, share])
        self._set_type(new, "T", dtype)
        return f"{name}:0"

    def _shard_shape(
        self, node: Any, position: int, entries: Mapping[int, Sharded], shard: int
    ) -> str:
        """An input that holds sizes, with those of one shard."""
        name = _data(node)[position]
        value = self.known(name)
        if value is None:
            raise RewriteError(f"splitting {node.name!r}: a size is not known before the run")
        new = np.array(value)
        flat = new.reshape(-1)
        for entry, state in entries.items():
            if flat[entry] != -1:
                flat[entry] = state.size(self.sizes[shard])
        return self._shared_const(new, shard)

    # -- tensors ---------------------------------------------------------------------------------

    def whole(self, name: str) -> str:
        """The name of the whole tensor; its parts are joined or combined once."""
        tensor = _tensor(name)
        if tensor not in self._whole:
            state = self.decisions.state_of_tensor[tensor]
            parts = self._parts[tensor, state]
            if isinstance(state, Sharded):
                self._whole[tensor] = self._joined(tensor, state, parts)
            else:
                assert isinstance(state, Partial)
                self._whole[tensor] = self._combined(tensor, state, parts)
        return self._whole[tensor]

    def parts(self, name: str, state: State) -> Sequence[str]:
        """The name of what each shard's copy reads."""
        if state == WHOLE:
            return [self.whole(name)] * len(self.sizes)
        tensor = _tensor(name)
        if (tensor, state) not in self._parts:
            self.whole(name)
            if state == Partial():
                self._parts[tensor, state] = self._terms(tensor)
            else:
                assert isinstance(state, Sharded), f"{tensor} is not {state}"
                self._cut(tensor, state)
        return self._parts[tensor, state]

    def _terms(self, tensor: str) -> list[str]:
        """A whole tensor as terms of a sum: the first shard has all of it."""
        terms = [self._whole[tensor]]
        for shard in range(1, len(self.sizes)):
            name = self._name(f"{_named(tensor, 'none')}/shard_{shard}")
            self._set_type(self._node("ZerosLike", name, terms[:1]), "T", self._dtype(tensor))
            terms.append(f"{name}:0")
        return terms

    def _joined(self, tensor: str, state: Sharded, parts: Sequence[str]) -> str:
        self.counts["join"] += 1
        axis, dtype, shape = state.axis, self._dtype(tensor), self._shape(tensor)
        if state.outer > 1:
            apart = [*shape[:axis], state.outer, -1, *shape[axis + 1 :]]
            parts = [self._reshaped(f"{tensor}/joined/apart", p, apart, dtype) for p in parts]
            axis += 1
        name = self._name(_named(tensor, "joined"))
        axis_const = self._shared_const(np.array(axis, np.int32))
        new = self._node("ConcatV2", name, [*parts, axis_const])
        self._set_type(new, "T", dtype)
        self._set_type(new, "Tidx", np.dtype(np.int32))
        new.attr["N"].i = len(parts)
        if state.outer > 1:
            return self._reshaped(f"{tensor}/joined/whole", f"{name}:0", list(shape), dtype)
        return f"{name}:0"

    def _combined(self, tensor: str, state: Partial, parts: Sequence[str]) -> str:
        self.counts["sum"] += 1
        dtype = self._dtype(tensor)
        name = self._name(_named(tensor, "summed" if state.combine == "sum" else state.combine))
        if state.combine == "sum":
            new = self._node("AddN", name, list(parts))
            self._set_type(new, "T", dtype)
            new.attr["N"].i = len(parts)
            return f"{name}:0"
        result = parts[0]
        for number, part in enumerate(parts[1:], 1):
            last = name if number == len(parts) - 1 else self._name(f"{name}_{number}")
            new = self._node(_COMBINE_OPS[state.combine], last, [result, part])
            if state.combine not in ("all", "any"):
                self._set_type(new, "T", dtype)
            result = f"{last}:0"
        return result

    def _cut(self, tensor: str, state: State) -> None:
        assert isinstance(state, Sharded)
        self.counts["cut"] += 1
        axis, dtype, shape = state.axis, self._dtype(tensor), self._shape(tensor)
        source = self._whole[tensor]
        if state.outer > 1:
            apart = [*shape[:axis], state.outer, -1, *shape[axis + 1 :]]
            source = self._reshaped(f"{tensor}/cut/apart", source, apart, dtype)
        sizes = np.array([size * state.inner for size in self.sizes], np.int32)
        name = self._name(_named(tensor, "cut"))
        axis_const = self._shared_const(np.array(axis + (state.outer > 1), np.int32))
        new = self._node("SplitV", name, [source, self._shared_const(sizes), axis_const])
        self._set_type(new, "T", dtype)
        self._set_type(new, "Tlen", np.dtype(np.int32))
        new.attr["num_split"].i = len(self.sizes)
        parts = [f"{name}:{shard}" for shard in range(len(self.sizes))]
        if state.outer > 1:
            merged = [*shape[:axis], -1, *shape[axis + 1 :]]
            parts = [self._reshaped(f"{tensor}/cut/part", p, merged, dtype) for p in parts]
        self._parts[tensor, state] = parts

    def _reshaped(self, name: str, tensor: str, shape: Sequence[int], dtype: Any) -> str:
        op, _, rest = name.partition(":")
        name = self._name(op + rest[rest.index("/") :] if "/" in rest else op)
        new = self._node("Reshape", name, [tensor, self._shared_const(np.array(shape, np.int32))])
        self._set_type(new, "T", dtype)
        self._set_type(new, "Tshape", np.dtype(np.int32))
        return f"{name}:0"

    def known(self, name: str) -> np.ndarray | None:
        """The value of an unsplit tensor that no run can change."""
        return self.decisions.values.value(_tensor(name))

    def fetch(self, fetch: str) -> str:
        """What to fetch for an unsplit step's fetch; an op in copies is a new no-op after all."""
        if ":" in fetch:
            return self.whole(fetch)
        copies = self._copies.get(fetch)
        if copies is None:
            return fetch
        self._origin = fetch
        return self._node("NoOp", self._name(f"{fetch}/all"), [f"^{name}" for name in copies]).name

    # -- nodes -----------------------------------------------------------------------------------

    def _controls(self, node: Any, shard: int | None) -> list[str]:
        """Control inputs: a copy waits for the copy of its own shard, a whole op for all."""
        controls: dict[str, None] = {}
        for name in node.input:
            if not name.startswith("^"):
                continue
            copies = self._copies.get(name[1:])
            if copies is None:
                controls[name] = None
            else:
                mine = copies if shard is None or len(copies) == 1 else [copies[shard]]
                controls.update((f"^{copy}", None) for copy in mine)
        return list(controls)

    def _copy_attrs(self, node: Any, new: Any, shard: int | None) -> None:
        new.device = node.device
        for key, value in node.attr.items():
            if key == "_class":
                for value_ in value.list.s:
                    name = value_.decode().removeprefix("loc:@")
                    if isinstance(self.decisions.answer_of_op.get(name), Split):
                        if shard is None:
                            continue  # a whole op can't lie beside all copies of another one
                        name = f"{name}/shard_{shard}"
                    new.attr["_class"].list.s.append(f"loc:@{name}".encode())
            elif key != "_output_shapes":
                new.attr[key].CopyFrom(value)

    def _node(self, op: str, name: str, inputs: Sequence[str]) -> Any:
        new = self.graph_def.node.add(op=op, name=name)
        new.input.extend(i.removesuffix(":0") for i in inputs)
        self.origin_of[name] = self._origin
        return new

    def _name(self, wanted: str) -> str:
        name = wanted
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _shared_const(self, value: np.ndarray, shard: int | None = None) -> str:
        """A constant; each shard has its own, so that none has to travel between them."""
        key = shard, str(value.dtype), value.shape, value.tobytes()
        if key not in self._consts:
            scope = "split" if shard is None else f"split/shard_{shard}"
            self._consts[key] = self._const(self._name(f"{scope}/const_{len(self._consts)}"), value)
        return f"{self._consts[key]}:0"

    def _const(self, name: str, value: np.ndarray) -> str:
        import tensorflow as tf

        new = self._node("Const", name, [])
        new.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        new.attr["dtype"].type = new.attr["value"].tensor.dtype
        return name

    def _set_type(self, node: Any, attr: str, dtype: Any) -> None:
        import tensorflow as tf

        node.attr[attr].type = tf.as_dtype(dtype).as_datatype_enum

    def _dtype(self, tensor: str) -> str:
        op, _, index = tensor.partition(":")
        return self.properties.dtype_of[op][int(index)]

    def _shape(self, tensor: str) -> tuple[int, ...]:
        op, _, index = tensor.partition(":")
        shape = self.properties.shape_of[op][int(index)]
        assert shape is not None
        return shape


def _numpy_dtype(dtype: str) -> Any:
    import tensorflow as tf

    return tf.as_dtype(dtype).as_numpy_dtype


def _data(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def _tensor(name: str) -> str:
    return with_index(parse_input(name).tensor)


def _named(tensor: str, what: str) -> str:
    op, _, index = tensor.partition(":")
    return f"{op}/{what}" if index == "0" else f"{op}/{what}_{index}"

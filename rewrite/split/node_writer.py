"""Adds the ops of a split step to a graph, each under a name of its own."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs.building.known_tensors import constant_node
from graphs.graph_view import reached
from graphs.names import data_inputs, free_name, op_of
from graphs.op_types import PLACEHOLDERS
from graphs.protos import DType, GraphDef, NodeDef, Nodes


@dataclasses.dataclass(frozen=True)
class TakenNames:
    """What a model has beside its step: names that nothing of a split step may take."""

    ops: Collection[str] = ()  # of the graph that the split step is written into
    functions: Collection[str] = ()  # of its library


class NodeWriter:
    """Adds ops one by one.

    Attributes:
      graph_def: what was added.
      origin_of: {op: op of the unsplit step that it stands for}.
      origin: what the ops that are added now stand for.
    """

    def __init__(self, graph_def: GraphDef, taken: Iterable[str], is_of_shard: bool = False):
        """Begins; names in `taken` are not given. One shard runs it all where `is_of_shard`."""
        self.graph_def = graph_def
        self.origin_of: dict[str, str] = {}
        self.origin = ""
        self._taken, self._is_of_shard = set(taken), is_of_shard
        self._consts: dict[tuple[object, ...], str] = {}
        self._value_of: dict[str, np.ndarray] = {}

    def free_name(self, wanted: str) -> str:
        """A name like the one wanted that no op has; it is taken from now on."""
        name = free_name(wanted, self._taken)
        self._taken.add(name)
        return name

    def node(self, op: str, name: str, inputs: Sequence[str], **types: DType) -> NodeDef:
        """Adds an op whose name was taken before; returns its NodeDef.

        Args:
          op: its type.
          inputs: "op:i" and "^op".
          types: {attribute: dtype}.
        """
        new = self.graph_def.node.add(op=op, name=name)
        new.input.extend(each.removesuffix(":0") for each in inputs)
        for attr, dtype in types.items():
            new.attr[attr].type = tf.as_dtype(dtype).as_datatype_enum
        self.origin_of[name] = self.origin
        return new

    def op(self, op: str, name: str, inputs: Sequence[str], **types: DType) -> str:
        """Adds an op under a free name; returns its output 0."""
        return self.node(op, self.free_name(name), inputs, **types).name + ":0"

    def reshape(self, name: str, tensor: str, shape: Sequence[int], dtype: DType) -> str:
        """Adds a Reshape to a shape that is known."""
        wanted = self.shared_const(np.array(shape, np.int32))
        return self.op("Reshape", name, [tensor, wanted], T=dtype, Tshape=np.int32)

    def concat(
        self, name: str, parts: Sequence[str], axis: int, dtype: DType, shard: int | None = None
    ) -> str:
        """Adds a ConcatV2 under a free name; returns its output. `shard` as for `shared_const`."""
        along = self.shared_const(np.array(axis, np.int32), shard)
        new = self.node("ConcatV2", self.free_name(name), [*parts, along], T=dtype, Tidx=np.int32)
        new.attr["N"].i = len(parts)
        return f"{new.name}:0"

    def split(
        self, name: str, tensor: str, sizes: str, axis: str, count: int, dtype: DType
    ) -> list[str]:
        """Adds a SplitV under a free name; returns its outputs."""
        inputs = [tensor, sizes, axis]
        new = self.node("SplitV", self.free_name(name), inputs, T=dtype, Tlen=np.int32)
        new.attr["num_split"].i = count
        return [f"{new.name}:{output}" for output in range(count)]

    def cast(self, tensor: str, number: DType) -> str:
        """An int32 tensor as another kind of number; itself as an int32."""
        if np.dtype(number) == np.int32:
            return tensor
        return self.op("Cast", "split/cast", [tensor], SrcT=np.int32, DstT=number)

    def shared_const(self, value: np.ndarray, shard: int | None = None) -> str:
        """A constant; each shard has its own, so that none has to travel between them."""
        scope = "split" if shard is None or self._is_of_shard else f"split/shard_{shard}"
        key = scope, str(value.dtype), value.shape, value.tobytes()
        if key not in self._consts:
            name = self.free_name(f"{scope}/const_{len(self._consts)}")
            self._consts[key] = self.const(name, value)
        return self._consts[key]

    def const(self, name: str, value: np.ndarray, waits: Sequence[str] = ()) -> str:
        """Adds a constant whose name was taken before, "^op" that it waits for; its output."""
        self.node("Const", name, waits).MergeFrom(constant_node(name, value))
        self._value_of[f"{name}:0"] = value
        return f"{name}:0"

    def for_shard(self, tensor: str, shard: int) -> str:
        """The name of what a shard reads: of a constant that was added here its own."""
        value = None if self._is_of_shard else self._value_of.get(tensor)
        return tensor if value is None else self.shared_const(value, shard)


# Says how long the diagonals are of which a split step makes matrices.
#
# TensorFlow doesn't know the shape of what a variable of a SavedModel holds while it loads the
# graph, nor any size that a run computes, as a step of any batch size does. That is harmless, but
# for MatrixDiagV2 and V3: asked for a number of rows, they are refused where the length of the
# diagonal is not known. (What a function's nodes note of their shapes doesn't hold for parts, and
# is gone.)

_DIAGONALS = frozenset(("MatrixDiagV2", "MatrixDiagV3"))
_ROWS, _COLUMNS = 2, 3


def wants_known_width(
    node: NodeDef, number: Callable[[str], np.ndarray | None], nodes: Nodes
) -> bool:
    """Whether TensorFlow has to know how long an op's input 0 is in its last dimension.

    Not where the number of rows is computed of what is fed: that may have another size in each run,
    and so may the diagonal.

    Args:
      number: a function from an input's name to its value, None where a run decides.
    """
    if node.op not in _DIAGONALS:
        return False
    asked = [data_inputs(node)[position] for position in (_ROWS, _COLUMNS)]
    values = {name: number(name) for name in asked}
    return any(v is not None and int(v) != -1 and not _is_of_feeds(nodes, name)
               for name, v in values.items())  # fmt: skip


def _is_of_feeds(nodes: Nodes, name: str) -> bool:
    """Whether a number is computed of an input, if only of its shape."""
    ops = reached([op_of(name)], lambda op: map(op_of, data_inputs(nodes[op])))
    return any(nodes[op].op in PLACEHOLDERS for op in ops)


def of_known_width(writer: NodeWriter, tensor: str, shape: Sequence[int], dtype: DType) -> str:
    """The tensor, with the last dimension of this shape known, and no other one."""
    name = writer.free_name(f"{tensor.partition(':')[0]}/known")
    node = writer.node("EnsureShape", name, [tensor], T=dtype)
    for size in (*np.full(len(shape) - 1, -1), shape[-1]):
        node.attr["shape"].shape.dim.add(size=int(size))
    return f"{name}:0"

"""How large a shard is inside of a function that it runs, in a step that takes any batch size."""

from collections.abc import Mapping

import numpy as np

import graphs.late_tensorflow as tf
from graphs.protos import DType, NodeDef, attribute
from rewrite.split.building.shard_shapes import (
    NUMBERS,
    FixedShapes,
    OpenShapes,
    SizesInput,
    WholeTensor,
    answer_of_shape,
    elements_per_entry,
)
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded


class OpenFunctionShapes:
    """As OpenShapes, computed of the shard's numbers, an argument of its function."""

    def __init__(self, writer: NodeWriter, numbers: str):
        self._writer, self._numbers = writer, numbers
        self._unpacked = ""

    def of_shard(self, sizes: SizesInput, shard: int) -> str:
        """See FixedShapes."""
        if not sizes.counting:
            return sizes.tensor
        mine = self._moved("Sub", sizes.tensor, sizes.value, sizes.counting)
        return sizes.or_unknown(self._writer, mine)

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """See FixedShapes; also what is said of the shape of a list's element."""
        writer, number, state = self._writer, whole.answer.dtype, whole.state
        if node.op == "Rank":
            return writer.const(name, whole.answer)
        if node.op == "TensorListElementShape":
            assert isinstance(state, Sharded)
            return self._element_shape(node, name, part, state)
        entries = {state.axis: state} if isinstance(state, Sharded) else {}
        shape = writer.op("Shape", f"{name}/part", [part], T=whole.dtype, out_type=number)
        shape = self._moved("AddV2", shape, np.zeros(whole.rank, number), entries)
        return answer_of_shape(writer, node, name, shape, number)

    def _element_shape(self, node: NodeDef, name: str, part: str, state: Sharded) -> str:
        """The list itself may say -1 for the batch, which is replaced by what it is."""
        writer, number = self._writer, attribute(node, "shape_type").type
        own = writer.node(node.op, writer.free_name(f"{name}/part"), [part], shape_type=number)
        rank = writer.op("Size", f"{name}/rank", [f"{own.name}:0"], T=number, out_type=np.int32)
        hot = writer.node(
            "OneHot", writer.free_name(f"{name}/batch"),
            [writer.shared_const(np.array(state.axis, np.int32)), rank,
             writer.shared_const(np.array(True)), writer.shared_const(np.array(False))],
            T=np.bool_, TI=np.int32,
        )  # fmt: skip
        hot.attr["axis"].i = -1
        dtype = np.dtype(tf.as_dtype(number).as_numpy_dtype)
        factor = np.array(state.outer * state.inner, dtype)
        of_all = [self._entries(dtype), writer.shared_const(factor)]
        size = writer.op("Mul", f"{name}/size", of_all, T=number)
        chosen = [f"{hot.name}:0", size, f"{own.name}:0"]
        return writer.node("SelectV2", name, chosen, T=number).name + ":0"

    def share(self, shard: int, dtype: str) -> str:
        """See FixedShapes."""
        op = self._writer.op
        own, all_ = (
            op("Cast", "split/cast", [tensor], SrcT=np.int32, DstT=np.float64)
            for tensor in (self._number(0), self._entries(np.dtype(np.int32)))
        )
        share = op("RealDiv", "split/share", [own, all_], T=np.float64)
        return op("Cast", "split/share", [share], SrcT=np.float64, DstT=dtype)

    def span(self, state: Sharded, rank: int, shard: int) -> tuple[str, str]:
        """See FixedShapes."""
        axis, others = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        axis[state.axis], others[state.axis] = state.inner, 0
        op, const = self._writer.op, self._writer.shared_const
        begin = op("Mul", "split/begin", [self._number(2), const(axis)], T=np.int32)
        size = op("Mul", "split/size", [self._number(0), const(axis)], T=np.int32)
        return begin, op("AddV2", "split/size", [size, const(others)], T=np.int32)

    def numbers_of(self, shard: int) -> str:
        """See FixedShapes."""
        return self._numbers

    def _moved(
        self, kind: str, sizes: str, value: np.ndarray, entries: Mapping[int, Sharded]
    ) -> str:
        """Sizes plus or minus what the other shards have of the batch."""
        number = value.dtype
        rest = self._writer.cast(self._number(1), number)
        weights = self._writer.shared_const(elements_per_entry(value, entries))
        own = self._writer.op("Mul", "split/rest", [rest, weights], T=number)
        return self._writer.op(kind, "split/shape", [sizes, own], T=number)

    def _entries(self, number: DType) -> str:
        """How many entries there are."""
        numbers = [self._number(0), self._number(1)]
        return self._writer.cast(
            self._writer.op("AddV2", "split/batch", numbers, T=np.int32), number
        )

    def _number(self, index: int) -> str:
        """One of the shard's numbers, a scalar."""
        if not self._unpacked:
            self._unpacked = self._writer.free_name("split/numbers")
            new = self._writer.node("Unpack", self._unpacked, [self._numbers], T=np.int32)
            new.attr["num"].i = NUMBERS
        return f"{self._unpacked}:{index}"


FunctionShapes = FixedShapes | OpenFunctionShapes
StepShapes = FixedShapes | OpenShapes
ShardShapes = StepShapes | OpenFunctionShapes

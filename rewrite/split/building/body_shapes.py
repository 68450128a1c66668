"""How large a shard is inside of a function that it runs: known beforehand, or an argument."""

from collections.abc import Mapping

import numpy as np

from graphs.protos import DType, NodeDef, attribute
from rewrite.split.building.shard_shapes import (
    OpenShapes,
    ShardShapes,
    WholeTensor,
    answer_of_shape,
    counting,
    elements_per_entry,
    or_unknown,
    share_of,
    with_batch,
)
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded, shard_sizes

NUMBERS = 3
"""A shard's numbers, an i4[3]: its entries, those of all others, those of the shards before it."""


class FixedBodyShapes:
    """Tensors of one shard's function that hold sizes; all are "op:i".

    Of a step that takes one batch size: constants.
    """

    def __init__(self, writer: NodeWriter, batch: int, num_shards: int, shard: int):
        self._writer, self._batch = writer, batch
        sizes = shard_sizes(batch, num_shards)
        self._size, self._before = sizes[shard], sum(sizes[:shard])

    def of_shard(
        self,
        sizes: str,
        value: np.ndarray,
        entries: Mapping[int, Sharded],
        is_of_list: bool = False,
    ) -> str:
        """An input that holds sizes, with those of the shard; see ShardShapes."""
        return self._writer.shared_const(with_batch(value, entries, self._size))

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """What is said of the shape of a whole tensor, or of a list's element; see ShardShapes."""
        return self._writer.const(name, whole.answer)

    def share(self, dtype: str) -> str:
        """A scalar: n_m / B."""
        return self._writer.shared_const(share_of(self._size, self._batch, dtype))

    def span(self, state: Sharded, rank: int) -> tuple[str, str]:
        """Where the shard's part of a whole tensor begins, and its size, both i4[rank]."""
        begin, size = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        begin[state.axis], size[state.axis] = self._before * state.inner, self._size * state.inner
        return self._writer.shared_const(begin), self._writer.shared_const(size)


class OpenBodyShapes:
    """Of a step that takes any batch size: computed of the shard's numbers, an argument."""

    def __init__(self, writer: NodeWriter, numbers: str):
        self._writer, self._numbers = writer, numbers
        self._made: dict[object, str] = {}

    def of_shard(
        self,
        sizes: str,
        value: np.ndarray,
        entries: Mapping[int, Sharded],
        is_of_list: bool = False,
    ) -> str:
        """See FixedBodyShapes."""
        counted = counting(value, entries)
        if not counted:
            return sizes
        mine = self._moved("Sub", sizes, value, counted)
        return or_unknown(self._writer, mine, value.dtype) if is_of_list else mine

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """See FixedBodyShapes."""
        writer, number = self._writer, whole.answer.dtype
        if node.op == "Rank":
            return writer.const(name, whole.answer)
        entries = {whole.state.axis: whole.state} if isinstance(whole.state, Sharded) else {}
        if node.op == "TensorListElementShape":
            return self._element_shape(node, name, part, entries)
        shape = writer.op("Shape", f"{name}/part", [part], T=whole.dtype, out_type=number)
        shape = self._moved("AddV2", shape, np.zeros(whole.rank, number), entries)
        return answer_of_shape(writer, node, name, shape, number)

    def _element_shape(
        self, node: NodeDef, name: str, part: str, entries: Mapping[int, Sharded]
    ) -> str:
        """The list itself may say -1 for the batch, which is replaced by what it is."""
        writer, number = self._writer, attribute(node, "shape_type").type
        own = writer.node(node.op, writer.free_name(f"{name}/part"), [part], shape_type=number)
        [(axis, state)] = entries.items()
        rank = writer.op("Size", f"{name}/rank", [f"{own.name}:0"], T=number, out_type=np.int32)
        hot = writer.node(
            "OneHot", writer.free_name(f"{name}/batch"),
            [writer.shared_const(np.array(axis, np.int32)), rank,
             writer.shared_const(np.array(True)), writer.shared_const(np.array(False))],
            T=np.bool_, TI=np.int32,
        )  # fmt: skip
        hot.attr["axis"].i = -1
        both = self._sum_of_numbers(_numpy_number(number))
        factor = writer.shared_const(np.array(state.outer * state.inner, _numpy_number(number)))
        size = writer.op("Mul", f"{name}/size", [both, factor], T=number)
        return writer.node("SelectV2", name, [f"{hot.name}:0", size, f"{own.name}:0"],
                           T=number).name + ":0"  # fmt: skip

    def share(self, dtype: str) -> str:
        """See FixedBodyShapes."""
        op = self._writer.op
        own, all_ = (
            op("Cast", "split/cast", [tensor], SrcT=np.int32, DstT=np.float64)
            for tensor in (self._number(0), self._sum_of_numbers(np.dtype(np.int32)))
        )
        share = op("RealDiv", "split/share", [own, all_], T=np.float64)
        return op("Cast", "split/share", [share], SrcT=np.float64, DstT=dtype)

    def span(self, state: Sharded, rank: int) -> tuple[str, str]:
        """See FixedBodyShapes."""
        axis, others = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        axis[state.axis], others[state.axis] = state.inner, 0
        op, const = self._writer.op, self._writer.shared_const
        begin = op("Mul", "split/begin", [self._number(2), const(axis)], T=np.int32)
        size = op("Mul", "split/size", [self._number(0), const(axis)], T=np.int32)
        return begin, op("AddV2", "split/size", [size, const(others)], T=np.int32)

    def _moved(
        self, kind: str, sizes: str, value: np.ndarray, entries: Mapping[int, Sharded]
    ) -> str:
        """Sizes plus or minus what the other shards have of the batch."""
        number = value.dtype
        rest = self._writer.cast(self._number(1), number)
        weights = self._writer.shared_const(elements_per_entry(value, entries))
        own = self._writer.op("Mul", "split/rest", [rest, weights], T=number)
        return self._writer.op(kind, "split/shape", [sizes, own], T=number)

    def _sum_of_numbers(self, number: DType) -> str:
        both = self._writer.op(
            "AddV2", "split/batch", [self._number(0), self._number(1)], T=np.int32
        )
        return self._writer.cast(both, number)

    def _number(self, index: int) -> str:
        """One of the shard's numbers, a scalar."""
        if "numbers" not in self._made:
            name = self._writer.free_name("split/numbers")
            new = self._writer.node("Unpack", name, [self._numbers], T=np.int32)
            new.attr["num"].i = NUMBERS
            self._made["numbers"] = name
        return f"{self._made['numbers']}:{index}"


BodyShapes = FixedBodyShapes | OpenBodyShapes


def _numpy_number(number: int) -> DType:
    import tensorflow as tf

    return np.dtype(tf.as_dtype(number).as_numpy_dtype)


class ShardNumbers:
    """The numbers of each shard in the main graph of a step that takes any batch size."""

    def __init__(self, writer: NodeWriter, shapes: ShardShapes, num_shards: int):
        self._writer, self._shapes, self._num_shards = writer, shapes, num_shards
        self._made = ""

    def of_shard(self, shard: int) -> str | None:
        """An i4[3]; None where all is known beforehand."""
        if not isinstance(self._shapes, OpenShapes):
            return None
        if not self._made:
            self._made = self._make(self._shapes.cut_sizes(1))
        return f"{self._made}:{shard}"

    def _make(self, sizes: str) -> str:
        writer = self._writer
        first = writer.shared_const(np.array(0, np.int32))
        batch = writer.op("Sum", "split/numbers/batch", [sizes, first], T=np.int32, Tidx=np.int32)
        rest = writer.op("Sub", "split/numbers/others", [batch, sizes], T=np.int32)
        before = writer.node(
            "Cumsum", writer.free_name("split/numbers/before"), [sizes, first], T=np.int32,
            Tidx=np.int32,
        )  # fmt: skip
        before.attr["exclusive"].b = True
        rows = [sizes, rest, f"{before.name}:0"]
        packed = writer.node("Pack", writer.free_name("split/numbers"), rows, T=np.int32)
        packed.attr["N"].i = NUMBERS
        name = writer.free_name("split/numbers/of_shard")
        parts = writer.node("Unpack", name, [f"{packed.name}:0"], T=np.int32)
        parts.attr["axis"].i, parts.attr["num"].i = 1, self._num_shards
        return name

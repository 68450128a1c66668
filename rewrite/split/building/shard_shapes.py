"""How large each shard is: known beforehand, or computed when the batch comes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs.protos import DType, NodeDef, Shape
from rewrite.split.any_batch.input_assertions import assertion
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded, State, shard_sizes

NUMBERS = 3
"""A shard's numbers, an i4[3]: its entries, those of all others, those of the shards before it."""


@dataclasses.dataclass(frozen=True)
class WholeTensor:
    """A tensor that an op asks the shape, size or rank of.

    Attributes:
      state: what it is in the split step.
      rank: how many dimensions it has.
      dtype: of its elements.
      answer: what the op answers for the batch size that the step is placed for.
      shape: as far as it is the same in every run, -1 for a size that is not.
      sizes: a whole tensor that holds its sizes, and how it is made of a run's; empty for none.
    """

    state: State
    rank: int
    dtype: str
    answer: np.ndarray
    shape: Shape = None
    sizes: str = ""


@dataclasses.dataclass(frozen=True)
class SizesInput:
    """An input of an op that holds sizes.

    Attributes:
      tensor: the whole tensor.
      value: what it holds for the batch size that the step is placed for.
      entries: {entry: how it counts the batch}; an entry of -1 stays, which TensorFlow infers.
      is_of_list: whether a list may have said them, which says -1 for what it doesn't know.
    """

    tensor: str
    value: np.ndarray
    entries: Mapping[int, Sharded]
    is_of_list: bool

    @functools.cached_property
    def counting(self) -> dict[int, Sharded]:
        """The entries that change with the batch."""
        flat = self.value.reshape(-1)
        return {entry: state for entry, state in self.entries.items() if flat[entry] != -1}

    def or_unknown(self, writer: NodeWriter, mine: str) -> str:
        """Sizes less what others have; -1 where a list said that, which is less still."""
        if not self.is_of_list:
            return mine
        number = self.value.dtype
        unknown = writer.shared_const(np.array(-1, number))
        return writer.op("Maximum", "split/size_or_unknown", [mine, unknown], T=number)


class FixedShapes:
    """Tensors of a split step, or of a shard's function, that hold sizes; all are "op:i".

    Of a step that takes one batch size: constants.

    Attributes:
      refusal: the assertion that the batch has an entry for each shard; empty where it has.
    """

    def __init__(
        self, writer: NodeWriter, batch: int, num_shards: int, refusals: Sequence[str] = ()
    ):
        """Begins; what is cut waits for the last of the assertions, which waits for the others."""
        self._writer = writer
        self._batch = batch
        self._sizes = shard_sizes(batch, num_shards)
        self._waiting: dict[int, str] = {}
        self.refusal = next(iter(refusals[-1:]), "")
        if self.refusal:
            self.cut_sizes(1)

    def cut_along(self, state: Sharded, tensor: str, dtype: str) -> str:
        """i4[M] how many elements each shard gets of a tensor's dimension that holds the batch."""
        del tensor, dtype
        return self.cut_sizes(state.inner)

    def cut_sizes(self, inner: int) -> str:
        """i4[M] how many elements each shard gets, with so many in each entry."""
        sizes = np.array(self._sizes, np.int32) * np.int32(inner)
        if not self.refusal:
            return self._writer.shared_const(sizes)
        if inner not in self._waiting:
            name = self._writer.free_name("split/sizes")
            self._waiting[inner] = self._writer.const(name, sizes, [f"^{self.refusal}"])
        return self._waiting[inner]

    def of_shard(self, sizes: SizesInput, shard: int) -> str:
        """An input that holds sizes, with those of one shard."""
        mine = np.array(sizes.value)
        for entry, state in sizes.counting.items():
            mine.reshape(-1)[entry] = state.size(self._sizes[shard])
        return self._writer.shared_const(mine, shard)

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """What a Shape, Size or Rank says of a whole tensor that is there in parts only.

        Args:
          node: the op of the unsplit step.
          name: of the op that takes its place.
          part: the part of shard 0.
        """
        return self._writer.const(name, whole.answer)

    def share(self, shard: int, dtype: str) -> str:
        """A scalar: n_m / B."""
        share = np.array(self._sizes[shard] / self._batch)
        own = share.astype(tf.as_dtype(dtype).as_numpy_dtype)
        return self._writer.shared_const(own, shard)

    def rows_before(self, rows: Sharded, shard: int, dtype: str) -> str:
        """A scalar: how many elements of the batch's dimension the shards before this one have."""
        first = rows.size(sum(self._sizes[:shard]))
        return self._writer.shared_const(np.array(first, dtype), shard)

    def span(self, state: Sharded, rank: int, shard: int) -> tuple[str, str]:
        """Where a shard's part of a whole tensor begins, and its size, both i4[rank]."""
        begin, size = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        begin[state.axis] = sum(self._sizes[:shard]) * state.inner
        size[state.axis] = self._sizes[shard] * state.inner
        return self._writer.shared_const(begin), self._writer.shared_const(size)

    def numbers_of(self, shard: int) -> str:
        """What a shard's functions have to be told; empty where all is known beforehand."""
        return ""


class ShapesOfPieces(FixedShapes):
    """Of a step with weights in pieces that takes inputs of several sizes.

    What is cut has one size in all runs. All other sizes are those of the run.
    """

    def of_shard(self, sizes: SizesInput, shard: int) -> str:
        """See FixedShapes."""
        rest = np.zeros_like(sizes.value)
        for entry, state in sizes.counting.items():
            rest.reshape(-1)[entry] = state.size(self._batch) - state.size(self._sizes[shard])
        if not rest.any():
            return sizes.tensor
        both = [sizes.tensor, self._writer.shared_const(rest, shard)]
        mine = self._writer.op("Sub", f"split/shard_{shard}/shape", both, T=sizes.value.dtype)
        return sizes.or_unknown(self._writer, mine)

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """See FixedShapes."""
        writer, number, state = self._writer, whole.answer.dtype, whole.state
        if node.op == "Rank":
            return writer.const(name, whole.answer)
        shape = writer.op("Shape", f"{name}/part", [part], T=whole.dtype, out_type=number)
        if isinstance(state, Sharded):
            rest = np.zeros(whole.rank, number)
            rest[state.axis] = state.size(self._batch) - state.size(self._sizes[0])
            both = [shape, writer.shared_const(rest)]
            shape = writer.op("AddV2", f"{name}/whole", both, T=number)
        return answer_of_shape(writer, node, name, shape, number)


class OpenShapes:
    """Of a step that takes any batch size: a few whole numbers that each run computes.

    Nothing but the batch's own entries is computed: every other size is the same in every run, or
    comes from the unsplit step's own shape arithmetic, less what the other shards have of it.
    """

    def __init__(
        self,
        writer: NodeWriter,
        feed: tuple[str, str],
        axis: int,
        num_shards: int,
        advice: str,
        refusals: Sequence[str] = (),
    ):
        """Begins with how many entries there are.

        Args:
          feed: a fed tensor that holds the batch, and its dtype.
          axis: along which it does.
          num_shards: M.
          advice: what to do with a batch of fewer than M entries, for its error.
          refusals: assertions that come before that of enough entries.
        """
        self._writer, self._num_shards = writer, num_shards
        self._made: dict[tuple[object, ...], str] = {}
        op, const = writer.op, writer.shared_const
        shape = op("Shape", "split/fed_shape", feed[:1], T=feed[1], out_type=np.int32)
        one = const(np.array([1], np.int32))
        self._batch = op(
            "Slice", "split/batch", [shape, const(np.array([axis], np.int32)), one],
            T=np.int32, Index=np.int32,
        )  # fmt: skip
        rounded = op(
            "AddV2", "split/rounded",
            [self._batch, const(np.arange(num_shards - 1, -1, -1, dtype=np.int32))], T=np.int32,
        )  # fmt: skip
        parts = const(np.array(num_shards, np.int32))
        self._entries = op("Squeeze", "split/entries", [self._batch], T=np.int32)
        enough = op("GreaterEqual", "split/enough", [self._entries, parts], T=np.int32)
        self.refusal = assertion(writer, enough, advice, self._batch, refusals[-1:])
        self._sizes = op(
            "FloorDiv", "split/sizes", [rounded, parts, f"^{self.refusal}"], T=np.int32
        )

    def cut_along(self, state: Sharded, tensor: str, dtype: str) -> str:
        """See FixedShapes."""
        if not state.is_any:
            return self.cut_sizes(state.inner)

        def made() -> str:
            op, const = self._writer.op, self._writer.shared_const
            shape = op("Shape", "split/shape_to_cut", [tensor], T=dtype, out_type=np.int32)
            ends = [const(np.array([at], np.int32)) for at in (state.axis, 1)]
            size = op("Slice", "split/size_to_cut", [shape, *ends], T=np.int32, Index=np.int32)
            each = op("FloorDiv", "split/in_an_entry", [size, self._batch], T=np.int32)
            return op("Mul", "split/sizes_to_cut", [self._sizes, each], T=np.int32)

        return self._once(("cut along", state.axis, tensor), made)

    def cut_sizes(self, inner: int) -> str:
        """See FixedShapes."""
        if inner == 1:
            return self._sizes
        return self._once(
            ("cut", inner),
            lambda: self._writer.op(
                "Mul", f"split/sizes_{inner}",
                [self._sizes, self._writer.shared_const(np.array(inner, np.int32))], T=np.int32,
            ),
        )  # fmt: skip

    def of_shard(self, sizes: SizesInput, shard: int) -> str:
        """See FixedShapes."""
        if not sizes.counting:
            return sizes.tensor

        def made() -> str:
            name = f"shard_{shard}/shape"
            mine = self._moved("Sub", sizes.tensor, sizes.value, sizes.counting, shard, name)
            return sizes.or_unknown(self._writer, mine)

        key = sizes.tensor, sizes.is_of_list, *sizes.counting.items()
        return self._once(("shape", shard, *key), made)

    def of_whole(self, node: NodeDef, name: str, part: str, whole: WholeTensor) -> str:
        """See FixedShapes."""
        writer, number = self._writer, whole.answer.dtype
        if node.op == "Rank":
            return writer.const(name, whole.answer)
        if shape := self._alone(whole):  # which asks no shard, so that no other one waits for it
            return answer_of_shape(writer, node, name, shape, number)
        shape = writer.op("Shape", f"{name}/part", [part], T=whole.dtype, out_type=number)
        if isinstance(whole.state, Sharded):
            zeros = np.zeros(whole.rank, number)
            shape = self._moved("AddV2", shape, zeros, {whole.state.axis: whole.state}, 0, name)
        return answer_of_shape(writer, node, name, shape, number)

    def _alone(self, whole: WholeTensor) -> str:
        """A whole tensor's shape, made of how large the batch is; empty where more has to be known.

        What TensorFlow infers of a shape without a run's sizes holds in every run.
        """
        number, state = whole.answer.dtype, whole.state
        batch = {state.axis: state} if isinstance(state, Sharded) and not state.is_any else {}
        fixed = np.array(() if whole.shape is None else whole.shape, number)
        if whole.shape is None or {*np.flatnonzero(fixed < 0)} != {*batch}:
            return whole.sizes
        fixed[[*batch]] = 0

        def made() -> str:
            op, const = self._writer.op, self._writer.shared_const
            each = const(elements_per_entry(fixed, batch))
            entries = [self._writer.cast(self._entries, number), each]
            grown = op("Mul", "split/shape/of_batch", entries, T=number)
            return op("AddV2", "split/shape", [grown, const(fixed)], T=number)

        key = "alone", str(number), *fixed.tolist(), *batch.items()
        return self._once(key, made) if batch else self._writer.shared_const(fixed)

    def share(self, shard: int, dtype: str) -> str:
        """See FixedShapes."""
        return self._once(("share", shard, dtype), lambda: self._share(shard, dtype))

    def rows_before(self, rows: Sharded, shard: int, dtype: str) -> str:
        """See FixedShapes."""

        def starts() -> str:
            before = self._before(self.cut_sizes(rows.inner), "split/before")
            return self._unpacked(self._writer.cast(before, dtype), dtype, "split/start")

        return self._of_each(("before", rows.inner, dtype), shard, starts)

    def numbers_of(self, shard: int) -> str:
        """See FixedShapes."""

        def numbers() -> str:
            op, sizes, first = self._writer.op, self._sizes, np.array(0, np.int32)
            both = [sizes, self._writer.shared_const(first)]
            batch = op("Sum", "split/numbers/batch", both, T=np.int32, Tidx=np.int32)
            rest = op("Sub", "split/numbers/others", [batch, sizes], T=np.int32)
            rows = [sizes, rest, self._before(sizes, "split/numbers/before")]
            name = self._writer.free_name("split/numbers")
            packed = self._writer.node("Pack", name, rows, T=np.int32)
            packed.attr["N"].i = NUMBERS
            of_shard = "split/numbers/of_shard"
            return self._unpacked(f"{packed.name}:0", np.dtype(np.int32), of_shard, axis=1)

        return self._of_each(("numbers",), shard, numbers)

    def _before(self, sizes: str, name: str) -> str:
        """i4[M] of i4[M]: what all shards before each one have."""
        inputs = [sizes, self._writer.shared_const(np.array(0, np.int32))]
        new = self._writer.node(
            "Cumsum", self._writer.free_name(name), inputs, T=np.int32, Tidx=np.int32
        )
        new.attr["exclusive"].b = True
        return f"{new.name}:0"

    def _share(self, shard: int, dtype: str) -> str:
        op = self._writer.op

        def shares() -> str:
            both = [self._writer.cast(each, np.float64) for each in (self._sizes, self._batch)]
            divided = op("RealDiv", "split/shares", both, T=np.float64)
            return self._unpacked(divided, np.float64, "split/share")

        mine = self._of_each(("shares",), shard, shares)
        return op("Cast", f"split/shard_{shard}/share", [mine], SrcT=np.float64, DstT=dtype)

    def _moved(
        self,
        kind: str,
        sizes: str,
        value: np.ndarray,
        entries: Mapping[int, Sharded],
        shard: int,
        name: str,
    ) -> str:
        """The whole's sizes less, or a part's plus, what the other shards have of the batch."""
        number, op, const = value.dtype, self._writer.op, self._writer.shared_const
        rest = self._rest(shard, number)
        fixed = {entry: state for entry, state in entries.items() if not state.is_any}
        weights = const(elements_per_entry(value, fixed))
        if len(fixed) < len(entries):
            there = self._writer.cast(self._entries, number)
            if kind == "AddV2":
                there = op("Sub", f"split/{name}/entries", [there, rest], T=number)
            each = op("FloorDiv", f"split/{name}/in_an_entry", [sizes, there], T=number)
            ones = {entry: Sharded(0) for entry in entries if entry not in fixed}
            chosen = const(elements_per_entry(value, ones))
            each = op("Mul", f"split/{name}/of_any", [each, chosen], T=number)
            weights = op("AddV2", f"split/{name}/of_all", [weights, each], T=number)
        own = op("Mul", f"split/{name}/rest", [rest, weights], T=number)
        return op(kind, f"split/{name}", [sizes, own], T=number)

    def _rest(self, shard: int, number: DType) -> str:
        """How many entries the other shards have, a scalar."""

        def rests() -> str:
            others = self._writer.op("Sub", "split/others", [self._batch, self._sizes], T=np.int32)
            return self._unpacked(self._writer.cast(others, number), number, "split/rest")

        return self._of_each(("rests", str(number)), shard, rests)

    def _unpacked(self, tensor: str, number: DType, name: str, axis: int = 0) -> str:
        """What each of the M shards has along an axis, outputs of one op."""
        new = self._writer.node("Unpack", self._writer.free_name(name), [tensor], T=number)
        new.attr["num"].i = self._num_shards
        if axis:
            new.attr["axis"].i = axis
        return f"{new.name}:0"

    def _of_each(self, key: tuple[object, ...], shard: int, make: Callable[[], str]) -> str:
        """A shard's output of an op that is made once for all."""
        return f"{self._once(key, make).removesuffix(':0')}:{shard}"

    def _once(self, key: tuple[object, ...], make: Callable[[], str]) -> str:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def elements_per_entry(value: np.ndarray, entries: Mapping[int, Sharded]) -> np.ndarray:
    """How much each size grows with each entry of the batch; an array like the sizes."""
    weights = np.zeros_like(value)
    for entry, state in entries.items():
        weights.reshape(-1)[entry] = state.outer * state.inner
    return weights


def answer_of_shape(writer: NodeWriter, node: NodeDef, name: str, shape: str, number: DType) -> str:
    """Adds what a Shape, ShapeN or Size says of a tensor of this shape, as the op `name`."""
    if node.op != "Size":
        return writer.node("Identity", name, [shape], T=number).name + ":0"
    first = writer.shared_const(np.array(0, np.int32))
    return writer.node("Prod", name, [shape, first], T=number, Tidx=np.int32).name + ":0"

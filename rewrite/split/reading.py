"""What the tensors of a graph stand for that was made of another one, op by op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.op_outputs import argument_types
from graphs.names import data_inputs
from rewrite.pass_base import RewriteError
from rewrite.split.joint_reader import JointReader, Meaning, Value, Whole
from rewrite.split.known_values import SHAPE_OPS
from rewrite.split.op_view import Split
from rewrite.split.states import WHOLE, Partial, State


class Reading:
    """A graph whose ops are parts of those of another one, or join, cut, weigh and count.

    Attributes:
      facts: `shape`, `dtype` and `value` of the other graph's tensors.
      sizes: entries of the batch in each shard.
      where: what is read, in messages.
      nodes: {name: NodeDef}.
      copies: {op: its copies, one per shard}, where all shards' lie in this graph.
      reader: what it has met of joins, sums and cuts.
    """

    def __init__(self, facts: Any, sizes: Sequence[int], where: str, asked: int):
        """Begins; of all parts only those of shard `asked` may be asked for their shape."""
        self.facts, self.sizes, self.where = facts, tuple(sizes), where
        self.nodes: Mapping[str, Any] = {}
        self.copies: dict[str, list[str]] = {}
        self.reader = JointReader(self.sizes, self._whole)
        self._asked_shard = asked
        self._value_of: dict[str, Value] = {}  # by what an input of a NodeDef says
        self._alone = [frozenset({shard}) for shard in range(len(self.sizes))]

    def meaning(self, name: str) -> Value:
        """What an input stands for: a tensor of the other graph, or a number.

        Raises:
          RewriteError: there is no such tensor, or it comes later.
        """
        value = self._value_of.get(name.removesuffix(":0"))
        if value is None:
            raise RewriteError(f"reading {name!r} of {self.where}: it is not there in time")
        return value

    def number(self, value: Value) -> np.ndarray | None:
        """The value of a number, or of a whole tensor that no run can change."""
        if not isinstance(value, Meaning):
            return value
        known: np.ndarray | None = self.facts.value(value.tensor)
        return known if value == Meaning(value.tensor) else None

    def said(self, name: str) -> np.ndarray | None:
        """The number that an op makes, however it stands for something."""
        return self.number(Reading.meaning(self, name))

    def numbers_of(self, shard: int) -> np.ndarray:
        """A shard's numbers: its entries, those of all others, those of the shards before it."""
        own, before = self.sizes[shard], sum(self.sizes[:shard])
        return np.array([own, sum(self.sizes) - own, before], np.int32)

    def means(self, op: str, outputs: Iterable[Value]) -> None:
        """Says what the outputs of an op stand for."""
        for index, value in enumerate(outputs):
            self._value_of[f"{op}:{index}" if index else op] = value

    def part(self, tensor: str, state: State, shard: int, is_mean: bool = False) -> Meaning:
        """What a shard has of a tensor that is in a state."""
        if state == WHOLE:
            return Meaning(tensor)
        weighted = is_mean and isinstance(state, Partial)
        return Meaning(tensor, state, self._alone[shard], is_unweighted=weighted)

    def parts(self, op: str, answer: Split, shard: int) -> list[Value]:
        """What the outputs of a shard's copy of an op stand for."""
        return [
            self.part(f"{op}:{index}", state, shard, answer.is_mean)
            for index, state in enumerate(answer.outputs)
        ]

    def node(self, name: str) -> Any:
        """Raises RewriteError where there is no such op."""
        if name not in self.nodes:
            raise RewriteError(f"reading {self.where}: {name!r} is missing")
        return self.nodes[name]

    def is_other(self, node: Any) -> bool:
        """Whether an op of that name is gone, or another one."""
        here = self.nodes.get(node.name)
        return here is None or here.op != node.op or here.input[:] != node.input[:]

    def read(self, node: Any) -> Sequence[Value]:
        """What the outputs of an op are that the other graph has not."""
        inputs = [Reading.meaning(self, name) for name in data_inputs(node)]
        if node.op in SHAPE_OPS and isinstance(inputs[0], Meaning):
            return list(self._asked(node, inputs))
        known = [self.number(value) for value in inputs]
        of_tensor = node.op == "Identity" and isinstance(inputs[0], Meaning)
        if node.op in NUMBER_OPS and not of_tensor and all(v is not None for v in known):
            return numbers(node, known)  # type: ignore[arg-type]
        return self.reader.read(node, inputs)

    def _asked(self, node: Any, inputs: Sequence[Value]) -> Iterator[np.ndarray]:
        import tensorflow as tf

        if set(node.attr) != ({"T"} if node.op == "Rank" else {"T", "out_type"}):
            raise RewriteError(f"reading {node.name!r} of {self.where}: its attributes are wrong")
        number = tf.int32 if node.op == "Rank" else tf.as_dtype(node.attr["out_type"].type)
        for value in inputs:
            is_here = isinstance(value, Meaning) and value.shards <= {self._asked_shard}
            if (
                not isinstance(value, Meaning)
                or not is_here
                or value.rows
                or node.attr["T"].type != self._whole(value.tensor).dtype
            ):
                raise RewriteError(f"reading {node.name!r} of {self.where}: of what is this?")
            shape = self.reader.shape(value)
            said: Any = {"Size": int(np.prod(shape)), "Rank": len(shape)}.get(node.op, shape)
            yield np.array(said, number.as_numpy_dtype)

    def _whole(self, tensor: str) -> Whole:
        import tensorflow as tf

        dtype = tf.as_dtype(self.facts.dtype(tensor))
        return Whole(self.facts.shape(tensor), dtype.as_datatype_enum)


_BINARY = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "RealDiv": np.true_divide,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
}
NUMBER_OPS = frozenset(
    {*_BINARY, "Const", "Identity", "Slice", "Squeeze", "Cast", "Unpack", "Prod", "Sum", "Cumsum",
     "Pack", "Size", "OneHot", "SelectV2"}
)  # fmt: skip
_KNOWN_ATTRS = frozenset(
    "T Tidx TI Index SrcT DstT Truncate keep_dims num N axis exclusive reverse out_type value "
    "dtype".split()
)


def numbers(node: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of an op of `NUMBER_OPS`.

    Raises:
      RewriteError: it is none of these ops, or has an attribute or an input that doesn't fit.
    """
    import tensorflow as tf

    if node.op not in NUMBER_OPS or not set(node.attr) <= _KNOWN_ATTRS:
        raise RewriteError(f"reading {node.name!r}: a {node.op} with these attributes has no place")
    if node.op == "Const":
        if node.attr["dtype"].type != node.attr["value"].tensor.dtype:
            raise RewriteError(f"reading {node.name!r}: its value is of another type than it says")
        return [tf.make_ndarray(node.attr["value"].tensor)]
    wanted = [tf.as_dtype(number) for number in argument_types(node, {})]
    if wanted != [tf.as_dtype(value.dtype) for value in inputs]:
        raise RewriteError(f"reading {node.name!r}: its inputs are of other types than it says")
    results = _results(node, inputs)
    made = argument_types(node, {}, of_outputs=True)
    if node.op == "Unpack":
        made = [node.attr["T"].type] * len(results)
    return [
        np.asarray(result).astype(tf.as_dtype(number).as_numpy_dtype)
        for result, number in zip(results, made, strict=True)
    ]


def _results(node: Any, inputs: Sequence[np.ndarray]) -> list[Any]:
    if node.op in _BINARY:
        return [_BINARY[node.op](*inputs)]
    if node.op in ("Identity", "Cast"):
        return [inputs[0]]
    if node.op == "Slice":
        value, begin, size = inputs
        return [value[int(begin[0]) : int(begin[0]) + int(size[0])]]
    if node.op == "Squeeze":
        return [np.squeeze(inputs[0])]
    if node.op == "Size":
        return [inputs[0].size]
    if node.op == "SelectV2":
        return [np.where(*inputs)]
    if node.op == "OneHot" and _int(node, "axis") == -1:
        hot, depth, on, off = inputs
        return [np.where(np.arange(int(depth)) == hot, on, off)]
    if node.op == "Pack" and _int(node, "N") == len(inputs):
        return [np.stack(inputs, axis=_int(node, "axis"))]
    if node.op == "Unpack":
        rows = np.moveaxis(inputs[0], _int(node, "axis"), 0)
        if _int(node, "num") == len(rows):
            return list(rows)
    return _over_axis(node, *inputs)


def _over_axis(node: Any, value: np.ndarray, axis: np.ndarray) -> list[Any]:
    """A sum, a product, or running sums that leave out the last one."""
    axes = tuple(int(each) for each in np.atleast_1d(axis))
    on = {key for key, attr in node.attr.items() if attr.b}
    if node.op in ("Prod", "Sum") and not on:
        reduce = np.prod if node.op == "Prod" else np.sum
        return [reduce(value, axis=axes, dtype=value.dtype)]
    if node.op == "Cumsum" and on == {"exclusive"}:
        return [np.cumsum(value, axis=axes[0]) - value]
    raise RewriteError(f"reading {node.name!r}: a {node.op} with these attributes has no place")


def _int(node: Any, attribute: str) -> int:
    """An attribute that is a whole number; 0 where it is left out."""
    return int(node.attr[attribute].i) if attribute in node.attr else 0

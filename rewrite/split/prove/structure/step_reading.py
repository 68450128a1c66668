"""What the tensors of a graph stand for that was made of another one, op by op."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs.building.op_outputs import argument_types
from graphs.flat_graph import FlatGraph
from graphs.function_library import CONVERTS_WEIGHTS
from graphs.names import data_inputs, tensor_of
from graphs.protos import GraphDef, NodeDef, Nodes, attribute
from rewrite.pass_base import RewriteError
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import DecidedGraph, Split
from rewrite.split.prove.structure.reshard_reader import JointReader, Meaning, Value, Whole
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.states import WHOLE, Partial, State


class Reading:
    """A graph whose ops are parts of those of another one, or join, cut, weigh and count.

    Attributes:
      decided: what becomes of the other graph.
      facts: what is known of its tensors.
      nodes: {name: NodeDef} of the graph that is read.
      sizes: entries of the batch in each shard.
      shards: those that live in this graph.
      where: what is read, in messages.
      copies: {op: its copies, one for each shard that lives here}.
      stands_in: {op that asks for a shape: the ops that say it in its place, one per output}; of
        some only what reads them shows that they say the right thing, they have none.
      asserts: the ops that refuse a batch with too few entries.
      pieces: the variables that are cut.
      ready: what puts them into pieces, before anything reads these.
      reader: what it has met of joins, sums and cuts.
    """

    def __init__(
        self,
        decided: DecidedGraph,
        nodes: Nodes,
        sizes: Sequence[int],
        shards: Sequence[int],
        where: str,
    ):
        """Begins; of all parts only those of the first shard may be asked for their shape."""
        self.decided, self.facts, self.nodes = decided, decided.facts, nodes
        self.sizes, self.shards, self.where = tuple(sizes), shards, where
        self.copies: dict[str, Sequence[str]] = {}
        self.stands_in: dict[str, Sequence[str]] = {}
        self.asserts: set[str] = set()
        self.pieces: Collection[str] = ()
        self.ready: set[str] = set()
        self.reader = JointReader(self.sizes, self._whole)
        self._said: dict[str, str] = {}
        self._value_of: dict[str, Value] = {}  # by what an input of a NodeDef says
        self._alone = [frozenset({shard}) for shard in range(len(self.sizes))]

    def find(self, node: NodeDef) -> None:
        """Finds an op's copies, or itself, and what its outputs stand for."""
        name, answer = node.name, self.decided.answer_of_op[node.name]
        tensors = [f"{name}:{index}" for index in range(len(self.facts.dtype_of[name]))]
        whole = [Meaning(tensor) for tensor in tensors]
        if isinstance(answer, Split):
            self.copies[name] = self.named(name, len(self.shards))
            for shard, copy in zip(self.shards, self.copies[name], strict=True):
                self.means(copy, self.parts(name, answer, shard))
            is_there = answer.is_repeated or name in self.pieces
            if is_there and name in self.nodes and name not in self.copies[name]:
                self.means(name, whole)  # for the whole ops that read it
        elif self._is_replaced(node, tensors):
            several = node.op == "ShapeN"
            self.stands_in[name] = self.named(name, len(tensors)) if several else [name]
            self._said.update(zip(self.stands_in[name], tensors, strict=False))
        else:
            self.means(self.node(name).name, whole)

    def named(self, op: str, count: int) -> Sequence[str]:
        """The ops that stand for one in its place."""
        raise NotImplementedError

    def _is_replaced(self, node: NodeDef, outputs: Sequence[str]) -> bool:
        """Whether something else says what an op says of a shape, which is known."""
        here, states = self.nodes.get(node.name), self.decided.state_of_tensor
        return (
            node.op in SHAPE_OPS | LIST_SHAPE_OPS
            and any(states[tensor_of(name)] != WHOLE for name in data_inputs(node))
            and all(self.facts.value(tensor) is not None for tensor in outputs)
            and (here is None or here.op != node.op or here.input[:] != node.input[:])
        )

    def meaning(self, name: str) -> Value:
        """What an input stands for; what says a shape stands for the op that asked for it."""
        if (said := self._said.get(name.removesuffix(":0"))) is not None:
            return Meaning(said)
        return self.value(name)

    def value(self, name: str) -> Value:
        """What an input is: a tensor of the other graph, or a number.

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
        return self.number(self.value(name))

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

    def node(self, name: str) -> NodeDef:
        """Raises RewriteError where there is no such op."""
        if name not in self.nodes:
            raise RewriteError(f"reading {self.where}: {name!r} is missing")
        return self.nodes[name]

    def read(self, node: NodeDef) -> Sequence[Value]:
        """What the outputs of an op are that the other graph has not."""
        inputs = [self.value(name) for name in data_inputs(node)]
        if node.op in SHAPE_OPS and isinstance(inputs[0], Meaning):
            return list(self._asked(node, inputs))
        known = [self.number(value) for value in inputs]
        of_tensor = node.op == "Identity" and isinstance(inputs[0], Meaning)
        if node.op in NUMBER_OPS and not of_tensor and all(v is not None for v in known):
            return numbers(node, known)  # type: ignore[arg-type]
        return self.reader.read(node, inputs)

    def _asked(self, node: NodeDef, inputs: Sequence[Value]) -> Iterator[np.ndarray]:
        if set(node.attr) != ({"T"} if node.op == "Rank" else {"T", "out_type"}):
            raise RewriteError(f"reading {node.name!r} of {self.where}: its attributes are wrong")
        number = tf.int32 if node.op == "Rank" else tf.as_dtype(attribute(node, "out_type").type)
        for value in inputs:
            is_here = isinstance(value, Meaning) and value.shards <= {self.shards[0]}
            if (
                not isinstance(value, Meaning)
                or not is_here
                or value.rows
                or node.attr["T"].type != self._whole(value.tensor).dtype
            ):
                raise RewriteError(f"reading {node.name!r} of {self.where}: of what is this?")
            shape = self.reader.shape(value)
            said: object = {"Size": int(np.prod(shape)), "Rank": len(shape)}.get(node.op, shape)
            yield np.array(said, number.as_numpy_dtype)

    def _whole(self, tensor: str) -> Whole:
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
    "Maximum": np.maximum,
}
NUMBER_OPS = frozenset(
    {*_BINARY, "Const", "Identity", "Slice", "Squeeze", "Cast", "Unpack", "Prod", "Sum", "Cumsum",
     "Pack", "Size", "OneHot", "SelectV2"}
)  # fmt: skip
_KNOWN_ATTRS = frozenset(
    "T Tidx TI Index SrcT DstT Truncate keep_dims num N axis exclusive reverse out_type value "
    "dtype".split()
)


def numbers(node: NodeDef, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of an op of `NUMBER_OPS`; RewriteError: none, or an attribute or input is unfit."""
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


def _results(node: NodeDef, inputs: Sequence[np.ndarray]) -> list[object]:
    if node.op == "Maximum" and np.any(inputs[1] != -1):
        raise RewriteError(f"reading {node.name!r}: it holds sizes at another number than -1")
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


def _over_axis(node: NodeDef, value: np.ndarray, axis: np.ndarray) -> list[object]:
    """A sum, a product, or running sums that leave out the last one."""
    axes = tuple(int(each) for each in np.atleast_1d(axis))
    on = {key for key, attr in node.attr.items() if attr.b}
    if node.op in ("Prod", "Sum") and not on:
        reduce = np.prod if node.op == "Prod" else np.sum
        return [reduce(value, axis=axes, dtype=value.dtype)]
    if node.op == "Cumsum" and on == {"exclusive"}:
        return [np.cumsum(value, axis=axes[0]) - value]
    raise RewriteError(f"reading {node.name!r}: a {node.op} with these attributes has no place")


def _int(node: NodeDef, attribute: str) -> int:
    """An attribute that is a whole number; 0 where it is left out."""
    return int(node.attr[attribute].i) if attribute in node.attr else 0


class StepReading(Reading):
    """A split step, understood."""

    def __init__(
        self,
        flat: FlatGraph,
        decisions: Decisions,
        graph_def: GraphDef,
        sizes: Sequence[int],
        copies: Mapping[str, Sequence[str]],
    ):
        """Begins and ends; that `copies` stand for the ops that they are said to is proven."""
        nodes = {node.name: node for node in graph_def.node}
        super().__init__(decisions, nodes, sizes, range(len(sizes)), "the split step")
        self._names, self._found = copies, set(flat.nodes)
        self._awaited: set[str] = set()
        self.pieces = decisions.pieces
        for node in flat.graph_def.node:
            self.find(node)
        known = {*flat.nodes, *(name for names in self.copies.values() for name in names)}
        for node in graph_def.node:
            if node.name not in known or node.name in self.stands_in:
                self._read_joint(node)
        if not self.asserts <= self._awaited:
            raise RewriteError(f"reading a split step: nothing waits for {min(self.asserts)!r}")

    def named(self, op: str, count: int) -> Sequence[str]:
        """Each of them stands for no other."""
        names = list(self._names.get(op, ()))
        if len({*names} - self._found) < count or len(names) != count:
            raise RewriteError(f"reading a split step: it has not {count} copies of {op!r}")
        self._found.update(names)
        return [self.node(name).name for name in names]

    def _read_joint(self, node: NodeDef) -> None:
        """Understands an op that the unsplit step has not."""
        controls = [name for name in node.input if name.startswith("^")]
        self._awaited.update(name[1:] for name in controls)
        if node.op in ("Assert", "NoOp"):
            for name in data_inputs(node):
                self.value(name)
            self.asserts.update({node.name} if node.op == "Assert" else ())
            return
        if CONVERTS_WEIGHTS in node.attr:
            pieces = [self.node(n) for handle in self.pieces for n in self.copies[handle]]
            names = [piece.attr["shared_name"].s for piece in pieces]
            is_right = len({*names}) == len(names) and data_inputs(node) == [*self.pieces]
            if not is_right or list(node.attr[CONVERTS_WEIGHTS].list.s) != names:
                raise RewriteError(f"reading {node.name!r} of the split step: other variables")
            self.ready.add(node.name)
            return
        is_late = any(self.node(name[1:]).op != "Assert" for name in controls)
        if is_late and node.name not in self._said:
            raise RewriteError(f"reading {node.name!r} of the split step: it waits for an op")
        self.means(node.name, self.read(node))

"""Finds ops that must have the shapes of another one: TensorFlow is asked about one of them.

A step of 64 shards has 160,000 ops, but little more than the unsplit step's kinds of them: shards
are of two sizes at most. Importing all of them takes 14 s; those that differ, two.
"""

import functools
from collections.abc import Collection, Sequence

import numpy as np

from graphs import op_types
from graphs.building.op_outputs import known_definition
from graphs.graph_edges import edges_of
from graphs.names import data_inputs, op_of
from graphs.op_graph import LongArray
from graphs.protos import GraphDef, NodeDef, constant

_LARGE_BYTES = 4096
"""Larger nodes hold weights, which no other node has."""
_SAY_SHAPES = frozenset({"Const", "Shape", "ShapeN", "Size", "Rank"})
# Of these TensorFlow knows elements where it knows those of one input.
_IN_PART = {
    "Pack": slice(None),
    "Concat": slice(1, None),
    "ConcatV2": slice(None, -1),
    "StridedSlice": slice(0, 1),
}

ELEMENTWISE = op_types.listed("elementwise")
"""Some whose outputs' shapes hang on their inputs' shapes alone, whatever their elements are."""
_BLIND_TO_FIRST = {
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze", "Tile", "Transpose", "Pad"), 1),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean", "Prod"), 1),
    **dict.fromkeys(("GatherV2", "UnsortedSegmentSum"), 2),
}
"""Some for whose outputs' shapes the elements of so many first inputs don't matter."""
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
"""What only looks at a state."""

_Source = tuple[int, int]  # a node that stands for others, and which of its outputs


def first_of_shapes(graph_def: GraphDef, fed: Collection[str]) -> LongArray:
    """i8[nodes]: the first node with the same outputs' shapes, which may be the node itself.

    Two nodes have them if type, attributes and the shapes of their inputs are the same, and, as
    far as TensorFlow may know them, the inputs' elements. So they have if they read the same
    tensors, or equally long parts of one that is cut. What has a state is like itself alone, and
    so is everything where loops of TensorFlow 1 go round.

    Args:
      graph_def: its nodes are in a topological order; what isn't, is like itself alone.
      fed: ops whose outputs are fed.
    """
    if any(node.op in op_types.NEXT_ITERATION for node in graph_def.node):
        return np.arange(len(graph_def.node), dtype=np.int64)
    return np.array(_Alike(graph_def.node, fed).stands_in, dtype=np.int64)


class _Alike:
    """Goes through a graph from its inputs on.

    Attributes:
      stands_in: [nodes] the number of the node that stands for each.
    """

    def __init__(self, nodes: Sequence[NodeDef], fed: Collection[str]):
        """Goes all the way."""
        self.stands_in: list[int] = []
        self._fed = fed
        self._of_shapes: dict[tuple[bytes, bool, tuple[_Source, ...]], int] = {}
        self._of_elements: dict[tuple[bytes, tuple[_Source, ...]], int] = {}
        self._may_be_known: set[int] = set()
        self._of_shape: dict[int, int] = {}  # what stands for it where elements don't matter
        self._constants: dict[int, NodeDef] = {}
        self._constant_of: dict[tuple[int, bytes], int] = {}  # the first of a type and a shape
        self._long_as: dict[int, Sequence[int]] = {}  # the first of a cut's parts of that size
        edges = edges_of(nodes)
        read = list(zip(edges.producer.tolist(), edges.output.tolist(), strict=True))
        first = edges.first.tolist()
        for number, node in enumerate(nodes):
            self._add(number, node, self._sources(number, read[first[number] : first[number + 1]]))

    def _add(self, number: int, node: NodeDef, sources: tuple[_Source, ...] | None) -> None:
        """Finds what stands for a node."""
        op_type: str = node.op
        if sources is None or not self._may_be_alike(node, op_type):
            first = of_shape = number
            may_be_known = sources is None or op_type == "Const"
        else:
            what, blind = bare(node), self._blind(op_type, sources)
            may_be_known = self._is_known(op_type, sources)
            # What has the same shapes is no key for what has the same elements: both may be
            # of one op that reads the first constant of a shape.
            of_shape = self._of_shapes.setdefault((what, may_be_known, blind), number)
            first = of_shape
            if may_be_known:
                first = self._of_elements.setdefault((what, sources), number)
            if op_type == "Identity" and blind[0][1] == 0:
                of_shape = blind[0][0]  # however often a tensor is handed on
        self.stands_in.append(first)
        if op_type == "Const":
            of_shape = self._of_constant(node, number)
        if first == number:
            self._of_shape[number] = of_shape
            if may_be_known:
                self._may_be_known.add(number)
            self._remember(number, node, sources or ())

    def _sources(self, number: int, read: Sequence[_Source]) -> tuple[_Source, ...] | None:
        """What a node reads, by what stands for it; None where that is not known yet."""
        sources = []
        for producer, output in read:
            if output < 0:  # a control edge
                continue
            if not 0 <= producer < number:
                return None
            first = self.stands_in[producer]
            if first in self._long_as and first not in self._may_be_known:
                output = self._as_long(first, output)
            sources.append((first, output))
        return tuple(sources)

    def _blind(self, op_type: str, sources: tuple[_Source, ...]) -> tuple[_Source, ...]:
        """The same, but where elements don't matter by what has the same shape."""
        count = len(sources) if op_type in ELEMENTWISE else _BLIND_TO_FIRST.get(op_type, 0)
        if not count:
            return sources
        blind = [(self._of_shape[first], self._as_long(first, i)) for first, i in sources[:count]]
        return (*blind, *sources[count:])

    def _of_constant(self, node: NodeDef, number: int) -> int:
        """The first constant of its shape; itself where that isn't said, or it is fed."""
        if node.name in self._fed or not {"value", "dtype"} <= node.attr.keys():
            return number
        shape = node.attr["value"].tensor.tensor_shape.SerializeToString(deterministic=True)
        return self._constant_of.setdefault((node.attr["dtype"].type, shape), number)

    def _as_long(self, first: int, output: int) -> int:
        same = self._long_as.get(first, ())
        return same[output] if output < len(same) else output

    def _may_be_alike(self, node: NodeDef, op_type: str) -> bool:
        if node.name in self._fed or (has_state(op_type) and op_type not in _READS):
            return False
        return op_type != "Const" or bool(node.ByteSize() <= _LARGE_BYTES)

    def _is_known(self, op_type: str, sources: Sequence[_Source]) -> bool:
        """Whether TensorFlow may know its elements when it infers shapes."""
        if op_type in _SAY_SHAPES:
            return True
        known = [first in self._may_be_known for first, _ in sources]
        if op_type in _IN_PART and any(known[_IN_PART[op_type]]):
            return True
        return bool(known) and all(known)

    def _remember(self, number: int, node: NodeDef, sources: Sequence[_Source]) -> None:
        if node.op == "Const":
            self._constants[number] = node
        elif node.op == "SplitV" and len(sources) == 3 and sources[1][0] in self._constants:
            value = constant(self._constants[sources[1][0]])  # None: it is damaged
            sizes = [] if value is None else value.reshape(-1).tolist()
            self._long_as[number] = [sizes.index(size) for size in sizes]


def bare(node: NodeDef) -> bytes:
    """What a node is, whatever it is called and reads."""
    copy = type(node)()
    copy.CopyFrom(node)
    for field in ("name", "input", "device", "experimental_debug_info"):
        copy.ClearField(field)
    for key in ("_class", "_output_shapes"):
        copy.attr.pop(key, None)
    serialized: bytes = copy.SerializeToString(deterministic=True)
    return serialized


@functools.cache
def has_state(op_type: str) -> bool:
    """Whether an op type is not known to make the same of the same."""
    definition = known_definition(op_type)
    return definition is None or definition.is_stateful


def without_same(graph_def: GraphDef, first: LongArray) -> GraphDef:
    """The graph of the first nodes alone, without control edges: they read the first of others."""
    nodes = graph_def.node
    stand_in = {nodes[n].name: nodes[f].name for n, f in enumerate(first.tolist()) if n != f}
    kept = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
    for number in np.flatnonzero(first == np.arange(len(first))).tolist():
        copy = kept.node.add()
        copy.CopyFrom(nodes[number])
        del copy.input[:]
        for name in data_inputs(nodes[number]):
            op = op_of(name)
            copy.input.append(stand_in.get(op, op) + name[len(op) :])
    return kept

"""Infers the dtype, shape and bytes of every tensor of a flat graph before it runs.

TensorFlow's own C++ shape functions answer when the graph is imported, piece by piece where it has
units (see pieces.py). Grappler knows less: it takes placeholders for tensors of unknown shape,
which leaves everything behind a batch dimension open (249 tensors of the RNNLM graph, here none).
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.conditionals import put_into_optional
from graphs.building.known_tensors import Known, joined_shapes
from graphs.building.pieces import SAYS_AXES, Called, Pieces, evaluated, known_shape, opened_call
from graphs.building.same_shapes import first_of_shapes, without_same
from graphs.by_key import by_key
from graphs.errors import ModelError, ShapesRefusedError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.host.time_limit import require_time
from graphs.names import op_of, parse_input, with_index
from graphs.op_graph import LongArray
from graphs.protos import (
    DType,
    GraphDef,
    NodeDef,
    Nodes,
    Shape,
    ShapeProto,
    placeholder,
    shape_proto,
)
from graphs.source_model import TensorSpec

UNKNOWN_DIMENSION = 1
"""The size that an unknown dimension counts as in bytes; such tensors are listed as unknown."""

STRING_ELEMENT_BYTES = 24
"""sizeof(tensorflow::tstring); what the string points to is not known before the run."""

HANDLE_BYTES = 8
"""A resource or variant is a pointer in a run; what it points to is counted where it lives."""

LARGE_CONSTANT_BYTES = 4096
"""Serialized constants above this are weights, not shapes or axes."""

# It is room for cuDNN's fused float16 kernels, next to nothing otherwise, and never inferred.
_SCRATCH_OUTPUTS = frozenset({("FusedBatchNormV3", 5)})

MOST_BYTES = 2**53
"""Of one tensor or variable: 8 PiB, more than any machine has; sums of such sizes stay exact."""

_VALUE_DEPENDENT_OPS = frozenset({"Unique", "UniqueWithCounts", "Where"})

_FED_PREFIX = "tfplace_fed_"
_REFUSED = re.compile(r"(?P<why>.*?) for '\{\{node (?P<op>[^}]+)\}\} = (?P<type>\w+)", re.DOTALL)

MAX_NESTING = 6
"""Functions inside each other that are inferred and priced; deeper ones are not."""


@dataclasses.dataclass(frozen=True)
class TensorProperties:
    """Dtype, shape and bytes of each output of each node.

    Attributes:
      dtype_of: {node: [dtype name of output i]}, reference types without their "_ref".
      shape_of: {node: [shape of output i]}; None for an unknown rank, -1 for an unknown
        dimension.
      bytes_of: {node: [bytes of output i]}; an unknown dimension counts as
        `UNKNOWN_DIMENSION`, an unknown rank as a scalar.
      unknown: tensors "op:i" that have an unknown rank or dimension, in graph order. The
        scratch output of batch normalization, which is always unknown and tiny, is left out.
      known: {node: {output i: what is known of it}} of what units are given, and of
        sizes that are no constants.
      first: i8[nodes] the first node of the same kind, see `first_of_shapes`; None where nobody
        looked, so that each node is one of its own.
    """

    dtype_of: Mapping[str, list[str]]
    shape_of: Mapping[str, list[Shape]]
    bytes_of: Mapping[str, list[int]]
    unknown: list[str]
    known: Mapping[str, Mapping[int, Known]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    first: LongArray | None = dataclasses.field(default=None, compare=False)

    def shape(self, tensor: str) -> Shape:
        """Of a tensor, by its name as an input of a main graph."""
        source = parse_input(tensor)
        return self.shape_of[source.op][source.output]

    def dtype(self, tensor: str) -> str:
        """Name of a tensor's dtype."""
        source = parse_input(tensor)
        return self.dtype_of[source.op][source.output]

    def known_of(self, tensor: str) -> Known:
        """What is known of a tensor, besides what units make."""
        source = parse_input(tensor)
        known = self.known.get(source.op, {}).get(source.output)
        return known or Known(self.dtype(tensor), self.shape(tensor))

    def num_bytes(self, tensor: str) -> int:
        """Bytes of a tensor."""
        source = parse_input(tensor)
        return self.bytes_of[source.op][source.output]


def infer(flat: FlatGraph) -> TensorProperties:
    """Infers every tensor of the flat graph, its feeds taken at their complete shapes.

    Args:
      flat: the graph; its devices and colocation wishes are ignored.

    Raises:
      ModelError: TensorFlow can't import the graph: the feeds' shapes contradict it.
    """
    return infer_graph_def(flat.graph_def, flat.feeds)


def infer_known(
    flat: FlatGraph, through_units: bool = False, refused: list[ModelError] | None = None
) -> TensorProperties:
    """Infers as `infer` does, but without bounds: what depends on values stays unknown.

    A bound is good enough to price an op; whoever cuts a tensor has to know its size. What units
    make is as the model says, unless their functions are to be inferred, too: then `refused` gets
    what these don't take.
    """
    called = _Functions(flat.graph_def, 0, refused) if through_units else None
    return _infer(flat.graph_def, list(flat.feeds), called, has_bounds=False)


def infer_graph_def(graph_def: GraphDef, feeds: Iterable[TensorSpec] = ()) -> TensorProperties:
    """Does what `infer` does, for a GraphDef and what it is fed."""
    return _infer(graph_def, list(feeds), _Functions(graph_def, 0))


class _Functions:
    """Infers what the functions of a graph return, each once for what it is given."""

    def __init__(self, graph_def: GraphDef, depth: int, refused: list[ModelError] | None = None):
        self._refused = [] if refused is None else refused
        self._library = library_of(graph_def)
        self._versions = graph_def.versions
        self._graph_type = type(graph_def)
        self._depth = depth
        self._returned: dict[tuple[str, tuple[Known, ...]], Sequence[Known] | None] = {}

    def __call__(self, name: str, given: tuple[Known, ...]) -> Sequence[Known] | None:
        """What is known of the results; None where that can't be found."""
        if (name, given) not in self._returned:
            try:
                returned = self._inferred(name, given) if self._depth < MAX_NESTING else None
            except ModelError as error:  # it is damaged, or is never given that
                self._refused.append(error)
                returned = None
            self._returned[name, given] = returned
        return self._returned[name, given]

    def _inferred(self, name: str, given: tuple[Known, ...]) -> Sequence[Known]:
        graph_def = self._graph_type(versions=self._versions)
        flat, results = opened_call(graph_def, name, self._library, given)
        opened = flat.graph_def
        inner = _Functions(opened, self._depth + 1, self._refused)
        pieces, _ = _bounded(without_same(opened, np.arange(len(opened.node))), [], inner)
        return [pieces.of(result) for result in results]


def _new_bounds(
    graph_def: GraphDef, properties: TensorProperties, nodes: Callable[[], Nodes]
) -> list[TensorSpec]:
    """Bounds for outputs whose shape is unknown although that of the op's input is known."""
    unknown = set(properties.unknown)
    bounds: list[TensorSpec] = []
    for node in graph_def.node:
        output = f"{node.name}:0"
        if node.op == "OptionalGetValue" and output in unknown:
            bounds += _taken_out(node, nodes(), properties)
        known_by_input = node.op in _VALUE_DEPENDENT_OPS or node.op in op_types.ENTER
        if not known_by_input or output not in unknown:
            continue
        shape = properties.shape(node.input[0])
        if shape is None or min(shape, default=0) < 0:
            continue
        bound = (num_elements(shape), len(shape)) if node.op == "Where" else shape
        bounds.append(TensorSpec(output, properties.dtype_of[node.name][0], bound))
    return bounds


def _in_loops(
    graph_def: GraphDef, properties: TensorProperties, bounds: Mapping[str, TensorSpec]
) -> list[TensorSpec]:
    """Shapes of what goes round in v1 loops: that of the first iteration, until another is seen."""
    began, changed = [], []
    nodes = {node.name: node for node in graph_def.node if node.op in op_types.NEXT_ITERATION}
    for node in graph_def.node:
        if node.op not in op_types.MERGES or len(node.input) != 2:
            continue
        output, dtype = f"{node.name}:0", properties.dtype_of[node.name][0]
        entered, handed = map(properties.shape, node.input)
        if output not in bounds:
            if op_of(node.input[1]) in nodes and entered is not None:
                began.append(TensorSpec(output, dtype, entered))
            continue
        shape = joined_shapes(joined_shapes(bounds[output].shape, entered), handed)
        if shape != bounds[output].shape:
            changed.append(TensorSpec(output, dtype, shape))
    return began or changed


def _standing_in(graph_def: GraphDef, first: LongArray, kept: GraphDef) -> dict[str, NodeDef]:
    """{name: the node of `kept` that stands for it}."""
    of_name = {node.name: node for node in kept.node}
    nodes = graph_def.node
    return {
        node.name: of_name[nodes[number].name]
        for node, number in zip(nodes, first.tolist(), strict=True)
    }


def _taken_out(node: NodeDef, nodes: Nodes, properties: TensorProperties) -> list[TensorSpec]:
    """The shape of what is taken out of an Optional, where all that may be in it has that shape."""
    if len(properties.dtype_of[node.name]) > 1:
        return []
    dtype, declared = properties.dtype_of[node.name][0], properties.shape_of[node.name][0]
    shapes = {
        properties.shape(name)
        for name in put_into_optional(node.input[0], nodes)
        if properties.dtype(name) == dtype and _may_be(properties.shape(name), declared)
    }
    if len(shapes) > 1 or any(shape is None or min(shape, default=0) < 0 for shape in shapes):
        return []
    return [TensorSpec(f"{node.name}:0", dtype, shape) for shape in shapes]


def _may_be(shape: Shape, declared: Shape) -> bool:
    """Whether a tensor of this shape may be where another one is declared."""
    if shape is None or declared is None:
        return True
    return len(shape) == len(declared) and all(
        min(one, other) < 0 or one == other for one, other in zip(shape, declared, strict=True)
    )


def _infer(
    graph_def: GraphDef, feeds: Sequence[TensorSpec], called: Called | None, has_bounds: bool = True
) -> TensorProperties:
    """Infers one node of each kind; without `called` nothing but what TensorFlow says of it."""
    require_time()
    first = first_of_shapes(graph_def, {op_of(feed.tensor) for feed in feeds})
    kept = without_same(graph_def, first)
    nodes = functools.cache(functools.partial(_standing_in, graph_def, first, kept))
    bounded = _bounded(kept, feeds, called, nodes) if has_bounds else _imported(kept, feeds, called)
    pieces, of_kept = bounded
    # The properties of all nodes, of which those that are alike share their lists.
    names = [node.name for node in graph_def.node]
    like = {name: names[f] for name, f in zip(names, first.tolist(), strict=True)}
    parts = (tensor.partition(":") for tensor in of_kept.unknown)
    unknown = by_key((op, index) for op, _, index in parts)
    given: dict[str, dict[int, Known]] = {}
    for tensor, each in pieces.known.items():
        source = parse_input(tensor)
        given.setdefault(source.op, {})[source.output] = each
    return TensorProperties(
        {name: of_kept.dtype_of[one] for name, one in like.items()},
        {name: of_kept.shape_of[one] for name, one in like.items()},
        {name: of_kept.bytes_of[one] for name, one in like.items()},
        [f"{name}:{i}" for name, one in like.items() for i in unknown.get(one, ())],
        {name: given[one] for name, one in like.items() if one in given},
        first,
    )


def _bounded(
    kept: GraphDef,
    feeds: Sequence[TensorSpec],
    called: Called | None,
    nodes: Callable[[], Nodes] | None = None,
) -> tuple[Pieces, TensorProperties]:
    """Infers all of a graph, and again as long as there are new bounds for it."""
    nodes = nodes or (lambda: {node.name: node for node in kept.node})
    pieces, known = _imported(kept, feeds, called)
    bounds: dict[str, TensorSpec] = {}
    while called is not None:
        new = _new_bounds(kept, known, nodes) or _in_loops(kept, known, bounds)
        if not new:
            break
        bounds.update((bound.tensor, bound) for bound in new)
        pieces, known = _imported(kept, [*feeds, *bounds.values()], called)
    return pieces, known


def _imported(
    kept: GraphDef, feeds: Sequence[TensorSpec], called: Called | None
) -> tuple[Pieces, TensorProperties]:
    """What TensorFlow says of a graph's tensors."""
    try:
        pieces = Pieces(with_feeds_as_placeholders(kept, feeds), called)
    except (ValueError, tf.errors.OpError) as error:
        found = _REFUSED.search(str(error))
        if found:
            raise ShapesRefusedError(found["op"], found["type"], found["why"].strip()) from error
        raise ModelError(
            f"inferring tensor shapes: TensorFlow can't import the graph ({error}); "
            "wanted feeds that fit; check --batch_size and --input_shape"
        ) from error
    return pieces, _read(pieces, kept, {feed.tensor: feed.shape for feed in feeds}, called)


def with_feeds_as_placeholders(graph_def: GraphDef, feeds: Iterable[TensorSpec]) -> GraphDef:
    """A copy without device and colocation wishes whose fed tensors come from placeholders.

    A fed placeholder gets the feed's shape; any other fed tensor is cut from its producer:
    its users read a new placeholder, so that the fed shape reaches them.

    Constants of more than `LARGE_CONSTANT_BYTES` become placeholders too: no shape depends on
    weights, and copying them would cost more than everything else.

    Returns:
      GraphDef with any new placeholders first, and the same nodes in the same order.
    """
    bare = tf.compat.v1.GraphDef(library=graph_def.library, versions=graph_def.versions)
    node_named = {node.name: node for node in graph_def.node}
    fed_name: dict[str, str] = {}
    fed_shape: dict[str, ShapeProto] = {}
    for feed in feeds:
        node = node_named.get(op_of(feed.tensor))
        if node is not None and node.op != "Placeholder":
            fed_name[with_index(feed.tensor)] = f"{_FED_PREFIX}{len(fed_name)}"
            bare.node.append(placeholder(fed_name[with_index(feed.tensor)], feed.dtype, feed.shape))
        elif node is not None and (feed.shape is not None or "shape" not in node.attr):
            fed_shape[node.name] = shape_proto(feed.shape)
    for node in graph_def.node:
        _add_bare(bare, node)
        if node.name in fed_shape:
            bare.node[-1].attr["shape"].shape.CopyFrom(fed_shape[node.name])
    for node in bare.node if fed_name else ():  # users of fed tensors read the placeholders
        for position, tensor in enumerate(node.input):
            if not tensor.startswith("^"):
                node.input[position] = fed_name.get(with_index(tensor), tensor)
    return bare


def num_elements(shape: Shape) -> int:
    """Elements of a shape; unknown dimensions count as `UNKNOWN_DIMENSION`."""
    return math.prod(size if size >= 0 else UNKNOWN_DIMENSION for size in shape or ())


def possible_bytes(num_bytes: int, node: NodeDef) -> int:
    """The number itself, of a tensor or variable of a node; ModelError: no machine can hold it."""
    if num_bytes > MOST_BYTES:
        raise ModelError(
            f"inferring tensor shapes: op {node.name!r} ({node.op}) makes {num_bytes:.2g} bytes; "
            f"wanted at most {MOST_BYTES:.2g}, as no machine holds more: check its shape, "
            "--batch_size and --input_shape, or save the model again"
        )
    return num_bytes


def _add_bare(graph_def: GraphDef, node: NodeDef) -> None:
    """Adds a copy without device and colocation wishes; for a large constant a placeholder."""
    copy = graph_def.node.add()
    if node.op == "Const" and node.ByteSize() > LARGE_CONSTANT_BYTES:
        value = node.attr["value"].tensor
        copy.name, copy.op = node.name, "Placeholder"
        copy.input.extend(node.input)
        copy.attr["dtype"].type = value.dtype
        copy.attr["shape"].shape.CopyFrom(value.tensor_shape)
        return
    copy.CopyFrom(node)
    copy.device = ""
    for key in ("_class", "_output_shapes"):
        copy.attr.pop(key, None)


def _read(
    pieces: Pieces, graph_def: GraphDef, fed_shape: Mapping[str, Shape], called: Called | None
) -> TensorProperties:
    dtype_of: dict[str, list[str]] = {}
    shape_of: dict[str, list[Shape]] = {}
    bytes_of: dict[str, list[int]] = {}
    unknown: list[str] = []
    for node in graph_def.node:
        dtypes, shapes, sizes = [], [], []
        for index, tensor in enumerate(pieces.outputs(node.name)):
            dtype = tensor.dtype.base_dtype
            name = f"{node.name}:{index}"
            fed = fed_shape.get(name)
            shape = known_shape(tensor.shape) if fed is None else fed
            if node.op in SAYS_AXES and called is not None:
                value = evaluated(tensor)
                shape = shape if value is None else value.shape
            if (shape is None or min(shape, default=0) < 0) and (
                (node.op, index) not in _SCRATCH_OUTPUTS
            ):
                unknown.append(name)
            dtypes.append(dtype.name)
            shapes.append(shape)
            sizes.append(possible_bytes(_element_bytes(dtype) * num_elements(shape), node))
        dtype_of[node.name], shape_of[node.name], bytes_of[node.name] = dtypes, shapes, sizes
    return TensorProperties(dtype_of, shape_of, bytes_of, unknown)


@functools.cache
def _element_bytes(dtype: DType) -> int:
    if dtype.name == "string":
        return STRING_ELEMENT_BYTES
    if dtype.name in ("resource", "variant"):
        return HANDLE_BYTES
    return int(dtype.size)

"""Keeps TensorFlow from evaluating what a model that is only looked at must not compute.

TensorFlow evaluates stateless ops of constants while it infers shapes, again for each op that asks.
So it would open any file that a stranger's ReadFile names, and a Fill of a billion elements, of
which a Reshape reads two, would take gigabytes and minutes.
"""

import math
import re
from collections.abc import Sequence

import graphs.late_tensorflow as tf
from graphs.building.op_outputs import argument_types, output_names, output_offsets, signature_of
from graphs.errors import ModelError
from graphs.function_library import library_of, referred_functions
from graphs.names import data_inputs, op_of, parse_input
from graphs.op_types import REACHES_OUT
from graphs.protos import DType, FunctionDef, GraphDef, Library, NodeDef, Tensor, TensorShape

MOST_BYTES = 1 << 20
"""What may be held to evaluate a constant: sizes and permutations are far smaller."""
_GROWS = re.compile(
    r"Broadcast(To|Dynamic)|Decode|Fill|LinSpace|MatrixDiag|Mirror|OneHot|Pad|Parse|Ragged|Random|"
    r"Range|Resize|Scatter|SparseToDense|Stateless|Tensor|Tile"
)
"""Ops that may make much of little; where they do, TensorFlow mostly knows how much."""
_FED = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


def never_evaluated(graph_def: GraphDef) -> GraphDef:
    """The graph with ops that TensorFlow does not evaluate in place of those that it must not.

    Returns:
      A copy, or the graph itself where there are none.
    """
    library = library_of(graph_def)
    bodies = [graph_def, *graph_def.library.function]
    replaced = [_Constants(body, library).not_to_evaluate() for body in bodies]
    if not any(replaced):
        return graph_def
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    for body, shapes_of in zip([copy, *copy.library.function], replaced, strict=True):
        new_names: dict[str, str] = {}
        for node in _nodes(body):
            if node.name in shapes_of:
                named = enumerate(output_names(node, library))
                new_names |= {f"{node.name}:{old}": f"{node.name}:outputs:{i}" for i, old in named}
                _replace(node, library, shapes_of[node.name])
        if body is not copy:
            for node in _nodes(body):
                node.input[:] = [new_names.get(name, name) for name in node.input]
            for output, name in body.ret.items():
                body.ret[output] = new_names.get(name, name)
    return copy


def restore_evaluated(made: GraphDef, given: GraphDef) -> None:
    """Gives back, to a graph that was made of `never_evaluated(given)`, the ops of `given`."""
    nodes = {each.name: each for each in given.node}
    functions = library_of(given)
    for node in made.node:
        if node.name in nodes and node.op != nodes[node.name].op:
            node.CopyFrom(nodes[node.name])
    for function in made.library.function:
        if function.signature.name in functions:
            function.CopyFrom(functions[function.signature.name])


def _nodes(body: GraphDef | FunctionDef) -> Sequence[NodeDef]:
    """The nodes of a GraphDef or a FunctionDef."""
    return body.node_def if hasattr(body, "node_def") else body.node


def _replace(node: NodeDef, library: Library, shapes: Sequence[TensorShape]) -> None:
    types = argument_types(node, library, True)
    node.attr.clear()
    node.input[:] = [name for name in node.input if name.startswith("^")]
    node.op = "InfeedDequeueTuple" if types else "NoOp"  # which says its shapes, and has a state
    if types:
        node.attr["dtypes"].list.type.extend(types)
        node.attr["shapes"].list.shape.extend(shape.as_proto() for shape in shapes)


class _Constants:
    """What a graph or function computes of constants alone, and how large that is.

    Such ops are made once more in a graph of their own, all at a time that read only what is made
    already. TensorFlow infers their shapes there, and evaluates for that what has been found small.
    """

    def __init__(self, body: GraphDef | FunctionDef, library: Library) -> None:
        self._library = library
        self._nodes = {node.name: node for node in _nodes(body)}
        self._made: dict[str, Sequence[Tensor]] = {}  # {constant op: its tensors, or stand-ins}
        self._own: dict[str, float] = {}  # bytes of an op
        self._bytes: dict[str, float] = {}  # of an op and of all that it is computed of
        self._replaced: dict[str, Sequence[TensorShape]] = {}

    def not_to_evaluate(self) -> dict[str, Sequence[TensorShape]]:
        """{op: the shapes of its outputs} of all that must not be evaluated."""
        users: dict[str, list[str]] = {}
        missing = {}
        for name, node in self._nodes.items():
            sources = {op_of(each) for each in data_inputs(node)}
            missing[name] = len(sources)
            for source in sources:
                users.setdefault(source, []).append(name)
        # What no op reads is evaluated for none.
        ready = [name for name, count in missing.items() if not count and name in users]
        with tf.Graph().as_default():
            while ready:
                nodes = [node for name in ready if not self._is_run(node := self._nodes[name])]
                self._make(nodes)
                ready = []
                for user in (user for node in nodes for user in users.get(node.name, ())):
                    missing[user] -= 1
                    if not missing[user]:
                        ready.append(user)
        for name, node in self._nodes.items():
            if node.op in REACHES_OUT:
                self._replaced[name] = self._unknown(node)
        return self._replaced

    def _is_run(self, node: NodeDef) -> bool:
        """Whether TensorFlow evaluates it for no shape, since a run may give another value."""
        if node.op in _FED or node.op in REACHES_OUT:
            return True
        try:
            return bool(signature_of(node, self._library).is_stateful)
        except ModelError:  # an op of a library that isn't loaded
            return True

    def _make(self, nodes: Sequence[NodeDef]) -> None:
        outputs = self._imported([node for node in nodes if not self._is_large_or_calls(node)])
        for node in nodes:
            types = [tf.as_dtype(n) for n in argument_types(node, self._library, True)]
            tensors = outputs.get(node.name)
            shapes = self._unknown(node) if tensors is None else [each.shape for each in tensors]
            read = {op_of(each) for each in data_inputs(node)}
            most = self._most(node.op, [self._own[each] for each in read])
            own = sum(_bytes(*each, most) for each in zip(shapes, types, strict=True))
            size = own + sum(self._bytes[each] for each in read)
            if tensors is None or size > MOST_BYTES:
                # Of a list of a billion sizes TensorFlow would make as many dimensions.
                shapes = [
                    tf.TensorShape(None if shape.rank == 1 and dtype.is_integer else shape)
                    for shape, dtype in zip(shapes, types, strict=True)
                ]
                tensors, own, size = list(map(tf.compat.v1.placeholder, types, shapes)), 0.0, 0.0
                if node.op != "Const" or not node.attr["value"].tensor.tensor_content:
                    self._replaced[node.name] = shapes
            self._made[node.name] = tensors
            self._own[node.name], self._bytes[node.name] = own, size

    def _most(self, op_type: str, read: Sequence[float]) -> float:
        """Bytes of an output whose size hangs on values, as that of Where: a guess that is high."""
        if _GROWS.match(op_type):
            return math.inf
        return max(16.0 * sum(read), math.prod(read) if len(read) <= 3 else 0.0, 64.0)

    def _is_large_or_calls(self, node: NodeDef) -> bool:
        if node.op == "Const":
            return node.attr["value"].ByteSize() > MOST_BYTES
        return next(referred_functions([node], self._library), None) is not None

    def _imported(self, nodes: Sequence[NodeDef]) -> dict[str, Sequence[Tensor]]:
        """{op: its tensors}; without ops whose inputs TensorFlow refuses."""
        if not nodes:
            return {}
        graph_def = tf.compat.v1.GraphDef()
        input_map = {}
        for node in nodes:
            copy = graph_def.node.add(name=node.name, op=node.op)
            copy.MergeFrom(type(node)(attr=node.attr))
            copy.attr.pop("_class", None)  # colocation with what is not here
            for tensor in map(self._tensor, data_inputs(node)):
                given = f"{tensor.op.name}/given:{tensor.value_index}"
                input_map[given] = tensor
                copy.input.append(given)
        names = [node.name for node in nodes]
        try:
            ops = tf.graph_util.import_graph_def(graph_def, input_map, names, name="made")
        except (ValueError, TypeError, tf.errors.OpError):  # the import of all of it will tell
            half = len(nodes) // 2
            return {**self._imported(nodes[:half]), **self._imported(nodes[half:])} if half else {}
        return {name: op.outputs for name, op in zip(names, ops, strict=True)}

    def _tensor(self, name: str) -> Tensor:
        parsed = parse_input(name)
        first = 0
        if parsed.output_arg:
            first = output_offsets(self._nodes[parsed.op], self._library)[parsed.output_arg]
        return self._made[parsed.op][first + parsed.output]

    def _unknown(self, node: NodeDef) -> list[TensorShape]:
        return [tf.TensorShape(None) for _ in argument_types(node, self._library, True)]


def _bytes(shape: TensorShape, dtype: DType, most: float) -> float:
    """Of a tensor, or `most` where its size isn't known."""
    if dtype.name in ("resource", "variant"):
        return 0.0
    if not shape.is_fully_defined():
        return most
    return float(math.prod(map(float, shape.as_list())) * dtype.size)

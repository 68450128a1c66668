"""Imports a graph into TensorFlow piece by piece: what a unit makes is found before its users come.

TensorFlow's shape functions say of a loop, a conditional or a call what was known as the model was
traced: nothing of a batch of any size, nothing of what lies in a list. What a unit is given says
more, once the bodies of its functions are inferred with it. So a graph is imported up to the unit,
its bodies are, and then what is behind it, with ops that make as much as the unit makes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.conditionals import branches_of
from graphs.building.flatten import flatten
from graphs.building.known_tensors import (
    HOLDS,
    NOTHING,
    Held,
    Known,
    add_stand_in,
    constant_node,
    joined,
    joined_held,
    narrowed,
)
from graphs.building.never_evaluated import never_evaluated
from graphs.building.same_shapes import ELEMENTWISE, bare
from graphs.flat_graph import FlatGraph
from graphs.function_library import (
    KEPT_WHOLE,
    called_function,
    handed_on,
    library_of,
    reached_functions,
)
from graphs.names import data_inputs, op_of, parse_input, source_of, with_index
from graphs.protos import (
    FunctionDef,
    GraphDef,
    Library,
    NodeDef,
    Operation,
    Shape,
    Tensor,
    TensorShape,
    attribute,
    shape_of,
)

MOST_NUMBERS = 64
"""Whole numbers that are kept of a tensor; more are no sizes and axes."""
_ROUNDS = 4
"""How often a loop's body is inferred, until an iteration hands on what it is given."""
_, _INT64 = _WHOLE_NUMBERS = 3, 9  # as DataType has them
_MADE = "tfplace_made_"
CALL = "body"
"""The call of a function that is opened by itself."""
_PUT = {"TensorListSetItem": 2, "TensorListPushBack": 1}
_TAKEN = {"TensorListGetItem": 0, "TensorListPopBack": 1}
SAYS_AXES = frozenset({"BroadcastGradientArgs", "Range"})
"""Their outputs' sizes are known where their values are."""
_SAME_LENGTH = op_types.ALIASES | {"TensorListSetItem", "ZerosLike", "AddN"}

Called = Callable[[str, tuple[Known, ...]], Sequence[Known] | None]


def functions_of(node: NodeDef, library: Library) -> list[tuple[str, int, float]]:
    """(function, its first argument among the node's inputs, share) of what a unit runs.

    The share says how often it runs in one run of the unit or, of a loop, in one iteration. Each of
    n branches of a conditional counts as 1 / n.
    """
    if node.op in op_types.LOOPS:
        found = [(node.attr[key].func.name, 0, 1.0) for key in ("body", "cond")]
    elif node.op in op_types.CONDITIONALS:
        branches = branches_of(node)
        found = [(branch.function, 1, 1.0 / len(branches)) for branch in branches]
    else:
        called = called_function(node, library)
        found = [] if called is None else [(called, 0, 1.0)]
    return [each for each in found if each[0] in library]


def add_call(
    graph_def: GraphDef, name: str, function: FunctionDef, given: Sequence[Known]
) -> list[str]:
    """Adds a call of a function, with what stands for its arguments; returns its outputs."""
    arguments = [argument_of_call(name, position) for position in range(len(given))]
    for argument, known in zip(arguments, given, strict=True):
        add_stand_in(graph_def, argument, known)
    call = graph_def.node.add(name=name, op="PartitionedCall", input=arguments)
    call.attr["f"].func.name = function.signature.name
    return [f"{name}:{i}" for i in range(len(function.signature.output_arg))]


def add_functions(graph_def: GraphDef, called: Sequence[str], library: Library) -> None:
    """Adds functions, which are to be opened, and what they refer to."""
    inner = {name for each in called for name in reached_functions(library[each].node_def, library)}
    for name in sorted({*called, *inner}):
        graph_def.library.function.add().CopyFrom(library[name])
        for key in KEPT_WHOLE if name in called else ():
            graph_def.library.function[-1].attr.pop(key, None)


def opened_call(
    graph_def: GraphDef, function: str, library: Library, given: Sequence[Known]
) -> tuple[FlatGraph, list[str]]:
    """A function as a graph of its own, and its results; `argument_of_call` says its arguments.

    Args:
      graph_def: empty; a call of the function is added.
      library: where it is, and what it calls.
      given: what its arguments are.
    """
    add_functions(graph_def, [function], library)
    results = []
    for number, output in enumerate(add_call(graph_def, CALL, library[function], given)):
        result = graph_def.node.add(name=f"output_{number}", op="Identity", input=[output])
        result.attr["T"].type = library[function].signature.output_arg[number].type
        results.append(f"{result.name}:0")
    return flatten(graph_def, [], results or [CALL], open_conditionals=False), results


def argument_of_call(call: str, position: int) -> str:
    """The op that stands for an argument of a call that was added."""
    return f"{call}_argument_{position}"


class Pieces:
    """A graph in TensorFlow.

    Attributes:
      known: {tensor "op:i": what is known of it} of what units are given, and of sizes.
    """

    def __init__(self, graph_def: GraphDef, called: Called | None):
        """Imports all of it.

        Args:
          graph_def: without control edges. It is one piece where it is in no topological order.
          called: infers the results of a function; None if all of it is to be one piece.
        """
        graph_def = never_evaluated(graph_def)
        self._graph = tf.Graph()
        self._called = called
        self._library = library_of(graph_def)
        self._nodes = {node.name: node for node in graph_def.node}
        self._piece = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
        self._stand_in: dict[str, str] = {}  # {a unit's output "op:i": what stands for it}
        self._num_made: dict[str, int] = {}  # {unit: its outputs}
        self._held: dict[str, Held] = {}
        self._ops: dict[str, Operation] = {}
        units = [node for node in graph_def.node if functions_of(node, self._library)]
        self._in_order = _in_order(graph_def.node)
        in_pieces = {node.name for node in units} if called and self._in_order else ()
        for node in graph_def.node:
            if node.name not in in_pieces or not self._add_made(node):
                self._add(node)
        self._import()
        read = {with_index(name) for unit in units for name in data_inputs(unit)}
        if called:
            read.update(name for node in graph_def.node for name in self._sizes(node))
        self.known = {tensor: self.of(tensor) for tensor in sorted(read)}

    def outputs(self, op: str) -> Sequence[Tensor]:
        """The tensors that an op makes, or what stands for them."""
        if op in self._num_made:
            return [self._tensor(f"{op}:{i}") for i in range(self._num_made[op])]
        outputs: Sequence[Tensor] = self._ops[op].outputs
        return outputs

    def of(self, name: str) -> Known:
        """What is known of a tensor that is imported."""
        tensor = self._tensor(name)
        dtype, shape = tensor.dtype.base_dtype.name, known_shape(tensor.shape)
        exact = b""
        if dtype == "resource":
            handle = self._tensor(source_of(name, self._nodes, op_types.HANDLE)).op
            exact = bare(handle.node_def) if handle.type == "VarHandleOp" else b""
        elif dtype in ("int32", "int64") and (
            -1 < _size(shape) <= MOST_NUMBERS or tensor.op.type in SAYS_AXES
        ):
            value = evaluated(tensor)
            exact = b"" if value is None else bare(constant_node("", value))
        return Known(dtype, shape, exact, self._held.get(tensor.name))

    def _sizes(self, node: NodeDef) -> Iterator[str]:
        """The inputs "op:i" that may say sizes, where they are no constants."""
        if node.op not in op_types.NO_LAUNCH and node.op not in ELEMENTWISE:
            for name in node.input:
                of_name = self._nodes[op_of(name)]
                if of_name.op != "Const" and self._tensor(name).dtype.name in ("int32", "int64"):
                    yield with_index(name)

    def _tensor(self, name: str) -> Tensor:
        name = with_index(name)
        source = parse_input(self._stand_in.get(name, name))
        return self._ops[source.op].outputs[source.output]

    def _add(self, node: NodeDef) -> None:
        """Adds a node to the piece that is imported next."""
        names = [self._stand_in.get(with_index(name), name) for name in node.input]
        of_list = self._in_order and (
            node.op == "TensorListStack"
            or (node.op in _TAKEN and node.attr["element_dtype"].type in _WHOLE_NUMBERS)
        )
        if of_list and op_of(names[0]) not in self._ops:
            self._import()
        copy = self._piece.node.add()
        copy.CopyFrom(node)
        copy.input[:] = names
        if node.op == "VariableShape":
            handle = self._nodes[op_of(source_of(node.input[0], self._nodes, op_types.HANDLE))]
            if handle.op == "VarHandleOp" and _size(shape_of(handle.attr["shape"].shape)) >= 0:
                dtype = np.int64 if attribute(copy, "out_type").type == _INT64 else np.int32
                shape = np.array(shape_of(handle.attr["shape"].shape), dtype)
                copy.CopyFrom(constant_node(node.name, shape))
        elif node.op == "ShapeN":  # which TensorFlow doesn't evaluate before the run
            for number, name in enumerate(copy.input):
                said = self._piece.node.add(name=self._new_name(node, number), op="Shape")
                said.input.append(name)
                for key in ("T", "out_type"):
                    said.attr[key].CopyFrom(copy.attr[key])
        elif of_list:
            known = self.of(names[0])
            if known.held is not None and node.op not in _TAKEN and known.held.length >= 0:
                copy.attr["num_elements"].i = known.held.length
            elif known.held is not None and node.op in _TAKEN and known.held.exact:
                taken = dataclasses.replace(known, exact=known.held.exact)
                self._replace(node, _TAKEN[node.op], taken)

    def _replace(self, node: NodeDef, output: int, known: Known) -> None:
        """Lets another op make an output of a node."""
        add_stand_in(self._piece, self._new_name(node, output), known)

    def _new_name(self, node: NodeDef, output: int) -> str:
        """The name of what is to make an output of a node."""
        name = f"{_MADE}{len(self._stand_in)}"
        self._stand_in[f"{node.name}:{output}"] = name
        return name

    def _import(self) -> None:
        """Imports the piece, and sees what is put into its lists."""
        piece, names = self._piece, [node.name for node in self._piece.node]
        earlier = {name for node in piece.node for name in node.input} - set(names)
        given = {name: self._tensor(name) for name in earlier if op_of(name) in self._ops}
        with self._graph.as_default():  # which may call an op otherwise than the piece does
            made = tf.import_graph_def(piece, input_map=given, return_elements=names, name="")
        self._ops.update(zip(names, made, strict=True))
        self._piece = type(piece)(versions=piece.versions)
        for node in piece.node:
            for tensor in self._ops[node.name].outputs:
                held = self._held_by(node, tensor) if tensor.dtype.name == "variant" else None
                if held is not None:
                    self._held[tensor.name] = held

    def _held_by(self, node: NodeDef, tensor: Tensor) -> Held | None:
        """What is in a list that a node makes; None where it makes none or that isn't known."""
        inputs = tensor.op.inputs
        if node.op in ("TensorListReserve", "EmptyTensorList"):
            size = evaluated(inputs[1]) if node.op == "TensorListReserve" else None
            length = -1 if size is None else int(size)
            exact = node.attr[HOLDS].s
            declared = _declared(tensor)
            element = declared if exact else NOTHING
            return Held(length, element, declared, node.attr["element_dtype"].type, exact)
        if node.op == "TensorListFromTensor":
            shape = known_shape(inputs[0].shape)
            length, element = (shape[0], shape[1:]) if shape else (-1, None)
            return Held(length, element, _declared(tensor), node.attr["element_dtype"].type)
        lists = [self._held.get(each.name) for each in inputs if each.dtype.name == "variant"]
        held = functools.reduce(joined_held, lists) if lists else None
        if held is None:
            return None
        if node.op in _PUT:
            item = self.of(node.input[_PUT[node.op]])
            one = Held(held.length, item.shape, held.declared, held.dtype, item.exact)
            held = joined_held(held, one) or held
        if node.op in _SAME_LENGTH and not attribute(node, "resize_if_index_out_of_bounds").b:
            return held
        return dataclasses.replace(held, length=-1)

    def _add_made(self, node: NodeDef) -> bool:
        """Adds what makes as much as a unit makes, if that is found."""
        self._import()
        made = self._made_by(node, tuple(map(self.of, data_inputs(node))))
        if made is None:
            return False
        self._num_made[node.name] = len(made)
        declared = map(shape_of, attribute(node, "output_shapes").list.shape)
        for number, (known, shape) in enumerate(zip(made, declared, strict=False)):
            made[number] = dataclasses.replace(known, shape=narrowed(known.shape, shape))
        for number, known in enumerate(made):
            self._replace(node, number, known)
        return True

    def _made_by(self, node: NodeDef, given: tuple[Known, ...]) -> list[Known] | None:
        """The outputs of a unit; None where a function can't be inferred, or never settles."""
        assert self._called is not None
        functions = functions_of(node, self._library)
        if node.op not in op_types.LOOPS:
            found = [self._called(name, given[first:]) for name, first, _ in functions]
            known = [each for each in found if each is not None]
            if len(known) < len(found):
                return None
            return [functools.reduce(joined, each) for each in zip(*known, strict=True)]
        body = functions[0][0]
        stays = handed_on(self._library[body])
        given = tuple(
            each if number in stays else dataclasses.replace(each, exact=b"")
            for number, each in enumerate(given)
        )
        for _ in range(_ROUNDS):
            handed = self._called(body, given)
            if handed is None or len(handed) != len(given):
                return None
            both = tuple(map(joined, given, handed))
            if both == given:
                return list(given)
            given = both
        return None


def _in_order(nodes: Sequence[NodeDef]) -> bool:
    """Whether each node comes after what it reads."""
    seen: set[str] = set()
    for node in nodes:
        if any(op_of(name) not in seen for name in node.input):
            return False
        seen.add(node.name)
    return True


def known_shape(shape: TensorShape) -> Shape:
    """A tf.TensorShape as a tuple."""
    if shape.rank is None:
        return None
    return tuple(-1 if size is None else size for size in shape.as_list())


def _size(shape: Shape) -> int:
    """Elements; -1 where they aren't known."""
    return -1 if shape is None or min(shape, default=0) < 0 else math.prod(shape)


def evaluated(tensor: Tensor) -> np.ndarray | None:
    """The value of a tf.Tensor that constants and shapes fix; None where they don't."""
    from tensorflow.python.client import pywrap_tf_session

    with tensor.graph._c_graph.get() as graph:
        value = pywrap_tf_session.TF_TryEvaluateConstant_wrapper(graph, tensor._as_tf_output())
    return None if value is None else np.asarray(value)


def _declared(tensor: Tensor) -> Shape:
    """The shape of the elements that a new list was made for."""
    from tensorflow.core.framework import cpp_shape_inference_pb2
    from tensorflow.python.client import pywrap_tf_session

    with tensor.graph._c_graph.get() as graph:
        said = pywrap_tf_session.GetHandleShapeAndType(graph, tensor._as_tf_output())
    data = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData.FromString(said)
    return shape_of(data.shape_and_type[0].shape) if data.shape_and_type else None

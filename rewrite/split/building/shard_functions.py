"""Makes the functions that the copies of loops, conditionals and calls run, one for each shard."""

from collections.abc import Collection, Mapping, Sequence

from graphs import op_types
from graphs.building.op_outputs import output_names
from graphs.names import data_inputs, free_name, op_of, parse_input, tensor_of
from graphs.protos import FunctionDef, Library, NodeDef, attribute
from graphs.tensor_protos import shape_proto
from rewrite.pass_base import RewriteError
from rewrite.split.building.body_shapes import (
    NUMBERS,
    BodyShapes,
    FixedBodyShapes,
    OpenBodyShapes,
    ShardNumbers,
)
from rewrite.split.building.shard_shapes import WholeTensor
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decision import DecidedFunction, Split, attributes_of_copies, type_of_copies
from rewrite.split.functions import as_body, output_name, stateful_ops
from rewrite.split.node_writer import NodeWriter
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.states import WHOLE, Listed, Partial, Sharded, State

_DROPPED = frozenset({"api_implements", "api_preferred_device", "forward_function_name"})
_DROPPED |= {"backward_function_name", "_construction_context", "_input_shapes"}
_NUMBERS = "split_numbers"
_INT32 = 3


class ShardFunctions:
    """Makes functions for shards; two shards of one size may share those of a loop or a call.

    A conditional's branches are opened, and an op has one device in all that share its function.

    In a step that takes any batch size each function has one more argument, the shard's numbers.

    Attributes:
      functions: what was made, FunctionDefs.
    """

    def __init__(
        self,
        library: Library,
        numbers: ShardNumbers,
        batch: int,
        num_shards: int,
        taken: Collection[str] = (),
    ):
        """Begins; `taken` are functions of the model that the library has not."""
        self.functions: list[FunctionDef] = []
        self._library = library
        self._numbers, self._batch, self._num_shards = numbers, batch, num_shards
        self._names = {*library, *taken}
        self._made: dict[tuple[bytes, int], str] = {}
        self._is_opened = True  # what is made now

    def adapt(self, node: NodeDef, answer: Split, shard: int, numbers: str | None = None) -> None:
        """Makes a shard's copy of an op run functions of its own, if it runs any.

        Args:
          node: the copy.
          answer: what becomes of the op.
          shard: whose copy it is.
          numbers: of the shard, in the function that the copy stands in.
        """
        if not answer.bodies:
            return
        numbers = numbers or self._numbers.of_shard(shard)
        is_opened = self._is_opened
        self._is_opened = is_opened and node.op in op_types.CONDITIONALS
        for key, body in answer.bodies.items():
            attribute, _, index = key.partition("/")
            returns = attribute == "body"
            name = self._function(body, shard, numbers is not None, returns)
            if index:
                node.attr[attribute].list.func[int(index)].name = name
            else:
                node.attr[attribute].func.name = name
        self._is_opened = is_opened
        if "output_shapes" in node.attr:
            self._set_output_shapes(node, answer, shard, numbers)
        if numbers is not None:
            _add_input(node, len(answer.inputs), numbers)

    def _set_output_shapes(
        self, node: NodeDef, answer: Split, shard: int, numbers: str | None
    ) -> None:
        shapes = attribute(node, "output_shapes").list.shape
        if len(shapes) != len(answer.outputs):
            return
        for shape, state in zip(shapes, answer.outputs, strict=True):
            sizes = [dim.size for dim in shape.dim]
            if isinstance(state, Sharded) and state.axis < len(sizes):
                # What a shard's size is, TensorFlow finds out by itself.
                sizes[state.axis] = -1
                shape.CopyFrom(shape_proto(tuple(sizes)))
        if numbers is not None and node.op in op_types.LOOPS:
            shapes.append(shape_proto((NUMBERS,)))

    def _function(self, split: DecidedFunction, shard: int, is_open: bool, returns: bool) -> str:
        """The name of a shard's own function."""
        original = self._library[split.body.function]
        new = type(original)()
        new.signature.CopyFrom(original.signature)
        new.signature.name = ""
        new.signature.control_output[:] = []
        for key, value in original.attr.items():
            if key not in _DROPPED:
                new.attr[key].CopyFrom(value)
        arguments = {
            op_of(tensor): each.name
            for tensor, each in zip(split.body.arguments, original.signature.input_arg, strict=True)
        }
        results = [each.name for each in original.signature.output_arg]
        writer = NodeWriter(
            type(split.body.flat.graph_def)(versions=split.body.flat.graph_def.versions),
            (node.name for node in split.body.flat.graph_def.node),
        )
        numbers = None
        if is_open:
            own = writer.free_name(_NUMBERS)
            writer.node("Placeholder", own, [], dtype="int32")
            arguments[own] = _NUMBERS
            new.signature.input_arg.add(name=_NUMBERS, type=_INT32)
            numbers = f"{own}:0"
        body = ShardBody(split, shard, writer, self._shapes(writer, shard, numbers), self, numbers)
        library = {**self._library, **{each.signature.name: each for each in self.functions}}
        nodes, returned = body.nodes_and_results(arguments, library)
        if is_open and returns:
            new.signature.output_arg.add(name=f"{_NUMBERS}_out", type=_INT32)
            results.append(f"{_NUMBERS}_out")
            returned.append(_NUMBERS)
        new.node_def.extend(nodes)
        for name, value in zip(results, returned, strict=True):
            new.ret[name] = value
        for op in stateful_ops(nodes, library):  # what waits for the copy waits for its reads
            new.signature.control_output.append(op)
            new.control_ret[op] = op
        return self._named(new, f"{split.body.function}_shard_{shard}", shard)

    def _shapes(self, writer: NodeWriter, shard: int, numbers: str | None) -> BodyShapes:
        if numbers is not None:
            return OpenBodyShapes(writer, numbers)
        return FixedBodyShapes(writer, self._batch, self._num_shards, shard)

    def _named(self, function: FunctionDef, wanted: str, shard: int) -> str:
        content = function.SerializeToString(deterministic=True)
        key = content, shard if self._is_opened else -1
        if key not in self._made:
            wanted = free_name(wanted, self._names)
            self._names.add(wanted)
            self._made[key] = wanted
            function.signature.name = wanted
            self.functions.append(function)
        return self._made[key]


def _add_input(node: NodeDef, position: int, tensor: str) -> None:
    """Adds an int32 behind the tensors that an op hands to its functions."""
    inputs = list(node.input)
    del node.input[:]
    node.input.extend([*inputs[:position], tensor.removesuffix(":0"), *inputs[position:]])
    node.attr["T" if node.op in op_types.LOOPS else "Tin"].list.type.append(_INT32)


class ShardBody:
    """Adds the ops of one shard's function, one op of the function after the other.

    Every tensor has one name here. One that is whole for all shards can be cut on the spot: the
    shard takes its part. Nothing is joined or summed.
    """

    def __init__(
        self,
        split: DecidedFunction,
        shard: int,
        writer: NodeWriter,
        shapes: BodyShapes,
        functions: ShardFunctions,
        numbers: str | None,
    ):
        """Begins and ends.

        Args:
          split: the function.
          shard: whose body is made.
          writer: of an empty graph, where the names of the function's ops are taken.
          shapes: how large the shard is.
          functions: makes the functions that the ops of this one run.
          numbers: see BodyShapes; None where all is known beforehand.
        """
        self.split, self.shard = split, shard
        self.writer, self.shapes = writer, shapes
        self._functions, self._numbers = functions, numbers
        self._made: dict[tuple[str, State], str] = {}
        for node in split.body.flat.graph_def.node:
            self._add(node)
        self._results = [
            self._part(tensor, state)
            for tensor, state in zip(split.body.outputs, split.results, strict=True)
        ]

    def nodes_and_results(
        self, arguments: Mapping[str, str], library: Library
    ) -> tuple[list[NodeDef], list[str]]:
        """NodeDefs, and what each output of the function is.

        Args:
          arguments: {op that stands for an argument: the argument}.
          library: all functions.
        """
        nodes = as_body(self.writer.graph_def, arguments, library)
        names = {node.name: output_names(node, library) for node in self.writer.graph_def.node}
        results = []
        for tensor in self._results:
            source = parse_input(tensor)
            if source.op in arguments:
                results.append(arguments[source.op])
            else:
                results.append(f"{source.op}:{output_name(names, source.op, source.output)}")
        return nodes, results

    # -- ops -------------------------------------------------------------------------------------

    def _add(self, node: NodeDef) -> None:
        answer = self.split.answer_of_op[node.name]
        inputs = [tensor_of(name) for name in data_inputs(node)]
        if isinstance(answer, Split):
            self._add_copy(node, answer, inputs)
        elif node.op in SHAPE_OPS | LIST_SHAPE_OPS and self._is_of_parts(node, inputs):
            self._add_shape(node, inputs)
        else:
            self._copy(node, [self._part(tensor, WHOLE) for tensor in inputs])

    def _add_copy(self, node: NodeDef, answer: Split, inputs: Sequence[str]) -> None:
        mine = [self._part(t, state) for t, state in zip(inputs, answer.inputs, strict=True)]
        for position, entries in answer.shape_inputs.items():
            value = self.split.facts.value(inputs[position])
            assert value is not None
            mine[position] = self.shapes.of_shard(
                mine[position], value, entries, "TensorList" in node.op
            )
        new = self._copy(node, mine, answer)
        self._functions.adapt(new, answer, self.shard, self._numbers)
        for index, state in enumerate(answer.outputs):
            if answer.is_mean and isinstance(state, Partial):
                self._weigh(f"{node.name}:{index}", state)

    def _copy(self, node: NodeDef, inputs: Sequence[str], answer: Split | None = None) -> NodeDef:
        new = self.writer.node(type_of_copies(node, answer), node.name, inputs)
        for key, attr in attributes_of_copies(node, answer).items():
            if key not in ("_class", "_output_shapes"):
                new.attr[key].CopyFrom(attr)
        for index in range(len(self.split.facts.dtype_of[node.name])):
            tensor = f"{node.name}:{index}"
            self._made[tensor, self.split.state_of_tensor[tensor]] = tensor
        return new

    def _is_of_parts(self, node: NodeDef, inputs: Sequence[str]) -> bool:
        """Whether something is known of the shapes of whole tensors that are there in parts."""
        return any(self.split.state_of_tensor[tensor] != WHOLE for tensor in inputs) and all(
            self.split.facts.value(f"{node.name}:{index}") is not None
            for index in range(len(inputs))
        )

    def _add_shape(self, node: NodeDef, inputs: Sequence[str]) -> None:
        for index, tensor in enumerate(inputs):
            output = f"{node.name}:{index}"
            answer, state = self.split.facts.value(output), self.split.state_of_tensor[tensor]
            assert answer is not None
            part = self._part(tensor, state)
            if isinstance(state, Listed):
                state = state.element or WHOLE
            rank = len(self.split.facts.shape(tensor) or ())
            whole = WholeTensor(state, rank, self.split.facts.dtype(tensor), answer)
            own = node.name if index == 0 else self.writer.free_name(f"{node.name}/{index}")
            self._made[output, WHOLE] = self.shapes.of_whole(node, own, part, whole)

    def _weigh(self, tensor: str, state: State) -> None:
        dtype = self.split.facts.dtype(tensor)
        name = f"{op_of(tensor)}/weighted"
        inputs = [tensor, self.shapes.share(dtype)]
        self._made[tensor, state] = self.writer.op("Mul", name, inputs, T=dtype)

    # -- tensors ---------------------------------------------------------------------------------

    def _part(self, tensor: str, state: State) -> str:
        """The shard's own part of a tensor."""
        have, state = self.split.state_of_tensor[tensor], self.split.read_as(tensor, state)
        if (tensor, state) not in self._made:
            if have != WHOLE:
                raise RewriteError(f"splitting a loop: {tensor!r} is {have}, wanted {state}")
            if isinstance(state, Sharded):
                self._made[tensor, state] = self._cut(tensor, state)
            else:
                self._made[tensor, state] = self._term(tensor)
        return self._made[tensor, state]

    def _term(self, tensor: str) -> str:
        """A whole tensor as a term of a sum: the first shard has all of it."""
        whole = self._part(tensor, WHOLE)
        if self.shard == 0:
            return whole
        dtype = self.split.facts.dtype(tensor)
        return self.writer.op("ZerosLike", f"{op_of(tensor)}/none", [whole], T=dtype)

    def _cut(self, tensor: str, state: Sharded) -> str:
        """The shard's slice of a whole tensor."""
        shape = self.split.facts.shape(tensor)
        if shape is None or state.outer > 1:
            raise RewriteError(f"splitting a loop: {tensor!r} can't be cut in its body")
        inputs = [self._part(tensor, WHOLE), *self.shapes.span(state, len(shape))]
        dtype = self.split.facts.dtype(tensor)
        return self.writer.op("Slice", f"{op_of(tensor)}/cut", inputs, T=dtype, Index="int32")

"""Makes the functions that the copies of loops, conditionals and calls run, one for each shard."""

from collections.abc import Collection

from graphs import op_types
from graphs.names import free_name, op_of
from graphs.protos import FunctionDef, Library, NodeDef, attribute, shape_proto
from rewrite.split.building.function_shapes import FunctionShapes, OpenFunctionShapes, ShardShapes
from rewrite.split.building.function_tensors import FunctionTensors
from rewrite.split.building.graph_builder import GraphBuilder
from rewrite.split.building.shard_shapes import NUMBERS, FixedShapes
from rewrite.split.decision import DecidedFunction, Split
from rewrite.split.functions import OF_ONE_FUNCTION, alone, as_body, stateful_ops
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded

_NUMBERS = "split_numbers"
_INT32 = 3


class ShardFunctions:
    """Makes functions for shards; two shards of one size may share those of a loop or a call.

    A conditional's branches are opened, and an op has one device in all that share its function.

    In a step that takes any batch size each function has one more argument, the shard's numbers.

    Attributes:
      functions: what was made, FunctionDefs.
    """

    def __init__(self, library: Library, batch: int, num_shards: int, taken: Collection[str] = ()):
        """Begins; `taken` are functions of the model that the library has not."""
        self.functions: list[FunctionDef] = []
        self._library = library
        self._batch, self._num_shards = batch, num_shards
        self._names = {*library, *taken}
        self._made: dict[tuple[bytes, int], str] = {}
        self._is_opened = True  # what is made now

    def adapt(self, node: NodeDef, answer: Split, shard: int, shapes: ShardShapes) -> None:
        """Makes a shard's copy of an op run functions of its own, if it runs any.

        Args:
          node: the copy.
          shapes: how large shards are, in the graph that the copy stands in.
        """
        if not answer.bodies:
            return
        numbers = shapes.numbers_of(shard)
        is_opened = self._is_opened
        self._is_opened = is_opened and node.op in op_types.CONDITIONALS
        for key, body in answer.bodies.items():
            attribute, _, index = key.partition("/")
            name = self._function(body, shard, bool(numbers), attribute == "body")
            if index:
                node.attr[attribute].list.func[int(index)].name = name
            else:
                node.attr[attribute].func.name = name
        self._is_opened = is_opened
        if "output_shapes" in node.attr:
            self._set_output_shapes(node, answer, bool(numbers))
        if numbers:  # behind the tensors that an op hands to its functions
            node.input.insert(len(answer.inputs), numbers.removesuffix(":0"))
            node.attr["T" if node.op in op_types.LOOPS else "Tin"].list.type.append(_INT32)

    def _set_output_shapes(self, node: NodeDef, answer: Split, has_numbers: bool) -> None:
        shapes = attribute(node, "output_shapes").list.shape
        if len(shapes) != len(answer.outputs):
            return
        for shape, state in zip(shapes, answer.outputs, strict=True):
            sizes = [dim.size for dim in shape.dim]
            if isinstance(state, Sharded) and state.axis < len(sizes):
                # What a shard's size is, TensorFlow finds out by itself.
                sizes[state.axis] = -1
                shape.CopyFrom(shape_proto(tuple(sizes)))
        if has_numbers and node.op in op_types.LOOPS:
            shapes.append(shape_proto((NUMBERS,)))

    def _function(self, split: DecidedFunction, shard: int, is_open: bool, returns: bool) -> str:
        """The name of a shard's own function, which gets its numbers and may return them."""
        original = self._library[split.body.function]
        kept = {key: original.attr[key] for key in original.attr if key not in OF_ONE_FUNCTION}
        new = type(original)(signature=original.signature, attr=kept)
        new.signature.name = ""
        new.signature.control_output[:] = []
        arguments = {
            op_of(tensor): each.name
            for tensor, each in zip(split.body.arguments, original.signature.input_arg, strict=True)
        }
        results = [each.name for each in original.signature.output_arg]
        flat = split.body.flat
        writer = NodeWriter(
            type(flat.graph_def)(versions=flat.graph_def.versions), flat.nodes, is_of_shard=True
        )
        shapes: FunctionShapes = FixedShapes(writer, self._batch, self._num_shards)
        if is_open:
            numbers = writer.op("Placeholder", _NUMBERS, [], dtype="int32")
            arguments[op_of(numbers)] = _NUMBERS
            new.signature.input_arg.add(name=_NUMBERS, type=_INT32)
            shapes = OpenFunctionShapes(writer, numbers)
        nodes = [alone(node) for node in flat.graph_def.node]
        copies = {node.name: [node.name] for node in nodes}
        tensors = FunctionTensors(writer, shapes, split, shard)
        builder = GraphBuilder(writer, split, [shard], copies, shapes, tensors, self.adapt)
        for node in nodes:
            builder.add(node)
        pairs = zip(split.body.outputs, split.results, strict=True)
        made = [tensors.parts(tensor, state)[0] for tensor, state in pairs]
        if is_open and returns:
            new.signature.output_arg.add(name=f"{_NUMBERS}_out", type=_INT32)
            results.append(f"{_NUMBERS}_out")
            made.append(numbers)
        library = {**self._library, **{each.signature.name: each for each in self.functions}}
        nodes, returned = as_body(writer.graph_def, arguments, made, library)
        new.node_def.extend(nodes)
        for name, value in zip(results, returned, strict=True):
            new.ret[name] = value
        for op in stateful_ops(nodes, library):  # what waits for the copy waits for its reads
            new.signature.control_output.append(op)
            new.control_ret[op] = op
        return self._named(new, f"{split.body.function}_shard_{shard}", shard)

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

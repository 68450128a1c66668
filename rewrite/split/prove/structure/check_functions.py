"""Proves that the function of a shard computes the shard's part of what the whole function does.

A loop, a conditional or a call in copies is right if each of its functions makes the parts that
were decided of the parts that it is given. For a loop that is the step of an induction: what its
body is given and what it hands on are cut alike, so what holds before an iteration holds after it,
and its condition, which reads nothing but whole tensors, ends all shards' loops after the same one.
"""

import copy
from collections.abc import Mapping, Sequence

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.op_outputs import output_names
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import FunctionDef, Library, NodeDef, attribute
from rewrite.pass_base import RewriteError
from rewrite.split.decide.branches import taken_with
from rewrite.split.decision import DecidedFunction, Split
from rewrite.split.functions import OF_ONE_FUNCTION, alone, stateful_ops
from rewrite.split.prove.structure.check_op import OpChecks, same_array
from rewrite.split.prove.structure.reshard_reader import Meaning, Value
from rewrite.split.prove.structure.step_reading import Reading
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.states import WHOLE, Listed, Optioned, Sharded, State


class FunctionProver:
    """Compares the functions that the copies of ops run with those that the ops ran."""

    def __init__(self, library: Library, sizes: Sequence[int]):
        self._library = library
        self._sizes = tuple(sizes)
        self._proven: set[tuple[str, int, int]] = set()

    def op(self, node: NodeDef, here: NodeDef, answer: Split, shard: int) -> None:
        """Raises RewriteError unless a copy's functions are those of its shard.

        Args:
          here: its copy.
        """
        bodies = answer.bodies
        has_numbers = bool(bodies) and len(data_inputs(here)) > len(data_inputs(node))
        for key, split in bodies.items():
            _require_boundary(node, answer, key, split)
            attribute, _, index = key.partition("/")
            value = here.attr[attribute]
            name = value.list.func[int(index)].name if index else value.func.name
            if name not in self._library:
                raise RewriteError(f"reading {here.name!r} of the split step: no function {name!r}")
            # Decisions live as long as a proof, so that no other one has this identity.
            if (name, shard, id(split)) not in self._proven:
                self._function(split, self._library[name], shard, has_numbers, attribute == "body")
                self._proven.add((name, shard, id(split)))

    def _function(
        self,
        split: DecidedFunction,
        function: FunctionDef,
        shard: int,
        has_numbers: bool,
        hands_on: bool,
    ) -> None:
        name = function.signature.name
        self._require_signature(split, function, has_numbers, has_numbers and hands_on)
        reading = FunctionReading(split, function, self._library, shard, self._sizes, has_numbers)
        checks = OpChecks(reading, self.op)
        for node in reading.whole:
            answer = split.answer_of_op[node.name]
            if isinstance(answer, Split) and answer.row_inputs:  # no function's op is cut so
                what = f"it reads {node.input[-1]!r}, wanted row numbers of its shard"
                raise RewriteError(f"reading {node.name!r} of {reading.where}: {what}")
            checks.op(node)
        results = zip(reading.results, split.body.outputs, split.results, strict=False)
        for new, old, state in results:
            checks.reads("a result", new, tensor_of(old), state, shard)
        own = reading.numbers_of(shard)
        if has_numbers and hands_on and not same_array(reading.said(reading.results[-1]), own):
            raise RewriteError(f"reading the function {name!r}: it hands on other numbers")

    def _require_signature(
        self, split: DecidedFunction, function: FunctionDef, has_numbers: bool, hands_on: bool
    ) -> None:
        """The arguments, results and attributes of the whole function, the numbers, all reads."""
        original = self._library[split.body.function]
        before, after = original.signature, function.signature
        inputs = [each.type for each in before.input_arg] + [3] * has_numbers
        outputs = [each.type for each in before.output_arg] + [3] * hands_on
        wanted = {key: value for key, value in original.attr.items() if key not in OF_ONE_FUNCTION}
        waits = stateful_ops(function.node_def, self._library)
        is_right = (
            [each.type for each in after.input_arg] == inputs
            and [each.type for each in after.output_arg] == outputs
            and dict(function.attr) == wanted
            and list(after.control_output) == waits
            and dict(function.control_ret) == dict(zip(waits, waits, strict=True))
            and after.is_stateful == before.is_stateful
        )
        if not is_right:
            raise RewriteError(
                f"reading the function {after.name!r} of a shard: it is called in another way"
            )


def _require_boundary(node: NodeDef, answer: Split, key: str, split: DecidedFunction) -> None:
    """What a function is given is what the op is given, and what it returns what the op returns."""
    first = 1 if node.op in op_types.CONDITIONALS else 0
    tensors = [tensor_of(name) for name in data_inputs(node)[first:]]
    own = [split.state_of_tensor[argument] for argument in split.body.arguments]
    given = answer.inputs[first:]
    is_right = len(tensors) == len(own) == len(given) and all(
        state == needed or _is_of_branch(node, key, split, tensor, needed, state)
        for tensor, needed, state in zip(tensors, given, own, strict=True)
    )
    results = [WHOLE] if key == "cond" else list(answer.outputs)
    is_loop = node.op in op_types.LOOPS
    is_right = is_right and list(split.results) == results
    if not is_right or (is_loop and tuple(answer.inputs) != tuple(answer.outputs)):
        raise RewriteError(f"reading {node.name!r}: what was decided of its functions disagrees")


def _is_of_branch(
    node: NodeDef, key: str, split: DecidedFunction, tensor: str, needed: State, own: State
) -> bool:
    """Whether a branch may know more of an Optional: by which branch of another one made it."""
    if not isinstance(needed, Optioned) or needed.held is not None or split.outer is None:
        return False
    made = taken_with(split.outer, node, key, tensor)
    return made is not None and made[2] == own


_UNKNOWN = -1
"""What a list may say of a dimension of its elements."""


class FunctionReading(Reading):
    """A shard's function, understood; the inputs of its nodes are as in a main graph.

    Attributes:
      whole: the ops of the whole function.
      results: what the function returns, as inputs of a main graph.
    """

    def __init__(
        self,
        split: DecidedFunction,
        function: FunctionDef,
        library: Library,
        shard: int,
        sizes: Sequence[int],
        has_numbers: bool,
    ):
        """Begins and ends. Raises RewriteError: an op makes no sense."""
        name = function.signature.name
        arguments = [each.name for each in function.signature.input_arg]
        given = dict(zip(arguments, map(op_of, split.body.arguments), strict=False))
        own, self.results = _main_form(function, library, given)
        super().__init__(split, own, sizes, [shard], f"the function {name!r} of shard {shard}")
        self.split, self.shard = split, shard
        self._read_arguments(function, has_numbers)
        nodes = split.body.flat.graph_def.node
        self.whole = [alone(node) for node in nodes if node.name not in given.values()]
        for node in self.whole:
            self.find(node)
        known = {*given.values(), *arguments[len(given) :], *(node.name for node in self.whole)}
        for name, node in self.nodes.items():
            if name not in known or name in self.stands_in:
                self.means(name, self.read(node))

    def named(self, op: str, count: int) -> Sequence[str]:
        """Itself; what stands for several is not known but by what it says."""
        return [self.node(op).name] if isinstance(self.decided.answer_of_op[op], Split) else []

    def _read_arguments(self, function: FunctionDef, has_numbers: bool) -> None:
        body = self.split.body
        for tensor in body.arguments:
            state = self.split.state_of_tensor[tensor]
            self.means(op_of(tensor), [self.part(tensor, state, self.shard)])
        more = len(function.signature.input_arg) - len(body.arguments)
        if more != has_numbers:
            raise RewriteError(f"reading {self.where}: its arguments are not those it had")
        if has_numbers:
            self.means(function.signature.input_arg[-1].name, [self.numbers_of(self.shard)])

    def read(self, node: NodeDef) -> Sequence[Value]:
        """What an op is that cuts, weighs or counts."""
        data = data_inputs(node)
        if len(data) < len(node.input):
            raise RewriteError(f"reading {node.name!r} of {self.where}: it waits for an op")
        if node.op in LIST_SHAPE_OPS or node.op == "Slice":
            first, *rest = map(self.value, data)
            if isinstance(first, Meaning):
                is_cut = node.op == "Slice"
                return [self._cut(node, first, rest) if is_cut else self._of_elements(node, first)]
        return super().read(node)

    def _of_elements(self, node: NodeDef, of: Meaning) -> np.ndarray:
        """What a list of parts says of the shape of its elements."""
        known = self.facts.elements.get(of.tensor)
        shape = None if known is None else known.shape
        element = of.state.element if isinstance(of.state, Listed) else None
        if shape is None or element is None or set(node.attr) != {"shape_type"}:
            raise RewriteError(f"reading {node.name!r} of {self.where}: of what is this?")
        shape = (*shape[: element.axis], _UNKNOWN, *shape[element.axis + 1 :])
        return np.array(shape, tf.as_dtype(attribute(node, "shape_type").type).as_numpy_dtype)

    def _cut(self, node: NodeDef, whole: Meaning, span: Sequence[Value]) -> Meaning:
        """A Slice of a whole tensor: the part of this shard."""
        shape, (begin, size) = self._whole(whole.tensor).shape, map(self.number, span)
        types = {"T": self._whole(whole.tensor).dtype, "Index": 3}
        is_right = {key: value.type for key, value in node.attr.items()} == types
        if begin is not None and size is not None and shape is not None and is_right:
            mine, before = self.sizes[self.shard], sum(self.sizes[: self.shard])
            for axis in np.flatnonzero(size != -1):
                state = Sharded(int(axis), 1, int(size[axis]) // mine)
                wanted = np.zeros_like(begin), np.full_like(size, -1)
                wanted[0][axis], wanted[1][axis] = before * state.inner, state.size(mine)
                is_all = shape[axis] == state.size(sum(self.sizes)) and len(shape) == len(begin)
                pairs = zip(wanted, (begin, size), strict=True)
                if (
                    is_all
                    and whole == Meaning(whole.tensor)
                    and all(np.array_equal(one, other) for one, other in pairs)
                ):
                    return self.part(whole.tensor, state, self.shard)
        raise RewriteError(f"reading {node.name!r} of {self.where}: it cuts no part")


def _main_form(
    function: FunctionDef, library: Library, given: Mapping[str, str]
) -> tuple[dict[str, NodeDef], list[str]]:
    """A function's ops by name, and its results, as the inputs of a main graph name them.

    `as_body` goes the other way.

    Raises:
      LookupError: an op reads an output that there is not.
    """
    named = {each.name: each.name for each in function.signature.input_arg} | dict(given)
    for node in function.node_def:
        for index, output in enumerate(output_names(node, library)):
            tensor = f"{node.name}:{index}" if index else node.name
            named[f"{node.name}:{output}"] = tensor
    nodes = {}
    for node in function.node_def:
        new = nodes[node.name] = copy.deepcopy(node)
        new.input[:] = [name if name.startswith("^") else named[name] for name in node.input]
    if len(nodes) < len(function.node_def):
        raise RewriteError("reading a shard's function: two of its ops have one name")
    outputs = [each.name for each in function.signature.output_arg]
    if set(function.ret) != set(outputs):
        raise RewriteError("reading a shard's function: it returns something else")
    return nodes, [named[function.ret[name]] for name in outputs]

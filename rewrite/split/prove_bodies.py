"""Proves that the function of a shard computes the shard's part of what the whole function does.

A loop, a conditional or a call in copies is right if each of its functions makes the parts that
were decided of the parts that it is given. For a loop that is the step of an induction: what its
body is given and what it hands on are cut alike, so what holds before an iteration holds after it,
and its condition, which reads nothing but whole tensors, ends all shards' loops after the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.names import data_inputs, op_of, tensor_of
from rewrite.pass_base import RewriteError
from rewrite.split.body_reading import BodyReading
from rewrite.split.branches import taken_with
from rewrite.split.function_body import stateful_ops
from rewrite.split.op_cases import bodies_of
from rewrite.split.op_view import Split
from rewrite.split.same_op import InputChecks, require_same_op, same_array, wanted_of
from rewrite.split.split_body import SplitBody
from rewrite.split.states import WHOLE, Optioned, State

_DROPPED = frozenset({"api_implements", "api_preferred_device", "forward_function_name"})
_DROPPED |= {"backward_function_name", "_construction_context", "_input_shapes"}
"""What only concerns the function whose part this is, not what it computes."""


class BodyProver:
    """Compares the functions that the copies of ops run with those that the ops ran."""

    def __init__(self, library: Mapping[str, Any], sizes: Sequence[int]):
        self._library = library
        self._sizes = tuple(sizes)
        self._proven: set[tuple[str, int, int]] = set()

    def op(self, node: Any, here: Any, answer: Split, shard: int) -> None:
        """Raises RewriteError unless a copy's functions are those of its shard.

        Args:
          node: the op of the unsplit step.
          here: its copy.
          answer: what was decided of it.
          shard: whose copy it is.
        """
        bodies = bodies_of(answer)
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
        self, split: SplitBody, function: Any, shard: int, has_numbers: bool, hands_on: bool
    ) -> None:
        name = function.signature.name
        self._require_signature(split, function, has_numbers, has_numbers and hands_on)
        reading = BodyReading(split, function, self._library, shard, self._sizes, has_numbers)
        checks = _BodyChecks(reading, self)
        arguments = {op_of(tensor) for tensor in split.body.arguments}
        for node in split.body.flat.graph_def.node:
            if node.name not in arguments and not reading.is_replaced(node):
                checks.op(node)
        results = zip(reading.results, split.body.outputs, split.results, strict=False)
        for new, old, state in results:
            checks.reads("a result", new, tensor_of(old), state, shard)
        own = reading.numbers_of(shard)
        if has_numbers and hands_on and not same_array(reading.said(reading.results[-1]), own):
            raise RewriteError(f"reading the function {name!r}: it hands on other numbers")

    def _require_signature(
        self, split: SplitBody, function: Any, has_numbers: bool, hands_on: bool
    ) -> None:
        """The arguments, results and attributes of the whole function, the numbers, all reads."""
        original = self._library[split.body.function]
        before, after = original.signature, function.signature
        inputs = [each.type for each in before.input_arg] + [3] * has_numbers
        outputs = [each.type for each in before.output_arg] + [3] * hands_on
        wanted = {key: value for key, value in original.attr.items() if key not in _DROPPED}
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


def _require_boundary(node: Any, answer: Split, key: str, split: SplitBody) -> None:
    """What a function is given is what the op is given, and what it returns what the op returns."""
    first = 1 if node.op in op_types.CONDITIONALS else 0
    tensors = [tensor_of(name) for name in data_inputs(node)[first:]]
    own = [split.states[argument] for argument in split.body.arguments]
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
    node: Any, key: str, split: SplitBody, tensor: str, needed: State, own: State
) -> bool:
    """Whether a branch may know more of an Optional: by which branch of another one made it."""
    if not isinstance(needed, Optioned) or needed.held is not None or split.outer is None:
        return False
    made = taken_with(split.outer, node, key, tensor)
    return made is not None and made[0].states[made[1]] == own


class _BodyChecks(InputChecks):
    """Compares the ops of a function with those of a shard's one."""

    def __init__(self, reading: BodyReading, functions: BodyProver):
        super().__init__(reading, reading.split.states)
        self._reading: BodyReading = reading
        self._functions = functions
        self._split, self._shard = reading.split, reading.shard

    def op(self, node: Any) -> None:
        """Raises RewriteError unless an op has become what was decided."""
        answer = self._split.answers[node.name]
        here = self._reading.nodes[node.name]
        tensors = [tensor_of(old) for old in data_inputs(node)]
        if not isinstance(answer, Split):
            require_same_op(here, wanted_of(node, None))
            for tensor, new in zip(tensors, data_inputs(here), strict=True):
                self.reads(node.name, new, tensor, WHOLE, self._shard)
            return
        require_same_op(here, wanted_of(node, answer))
        if answer.row_inputs:  # no function's op is cut so: nothing here tells row numbers
            raise self._wrong(node.name, data_inputs(here)[-1], "row numbers of its shard")
        self.copy_reads(tensors, here, self._shard, answer)
        self._functions.op(node, here, answer, self._shard)

    def reads(
        self,
        reader: str,
        new: str,
        tensor: str,
        state: State,
        shard: int | None,
        first_row: int = 0,
    ) -> None:
        """As in any graph; what any branch's Optional is, is this one's."""
        state = self._split.read_as(tensor, state)
        super().reads(reader, new, tensor, state, shard, first_row)

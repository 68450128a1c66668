"""What the rules and `decide` answer of an op: it is split, or it stays whole; of a graph's ops."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.protos import AttrValue, NodeDef
from rewrite.split.functions import Body
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Optioned, Sharded, State, is_same, seen_twice

NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
GRADIENTS = frozenset({"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"})


@dataclasses.dataclass(frozen=True)
class Split:
    """An op gets one copy per shard.

    Attributes:
      inputs: the state that each data input must have; the step is changed where an input has
        another one: parts are joined or summed, whole tensors are cut.
      outputs: the state of each output.
      shape_inputs: {input: {entry: Sharded}}, inputs that hold sizes (a shape, a slice's end):
        this entry of a 1-D input (entry 0 of a scalar) counts batch entries, outer * B * inner
        of them, and is outer * n_m * inner for shard m. A -1, which TensorFlow infers, stays.
      attrs: {name: AttrValue} that all copies have instead of the op's own.
      op: what type all copies are of, which have no attributes but these; "" for the op's own.
      row_inputs: {input: how the rows that it names count the batch}: a shard's rows are counted
        from its own first one.
      is_mean: whether each copy's outputs are averages over its own part of the batch: they are
        multiplied by n_m / B, so that their sum is the average over the whole batch.
      bodies: {attribute that names a function: what becomes of it} of a loop, a conditional or a
        call, whose copies run a function of their own shard.
    """

    inputs: tuple[State, ...]
    outputs: tuple[State, ...]
    shape_inputs: Mapping[int, Mapping[int, Sharded]] = dataclasses.field(default_factory=dict)
    attrs: Mapping[str, AttrValue] = dataclasses.field(default_factory=dict)
    is_mean: bool = False
    bodies: Mapping[str, "DecidedFunction"] = dataclasses.field(default_factory=dict)
    row_inputs: Mapping[int, Sharded] = dataclasses.field(default_factory=dict)
    op: str = ""

    @property
    def is_repeated(self) -> bool:
        """Whether every copy computes the whole, from whole inputs, for its own shard."""
        return all(state == WHOLE for state in (*self.inputs, *self.outputs))


def type_of_copies(node: NodeDef, answer: Split | None) -> str:
    """The type of an op's copies, or of the op where there is no answer."""
    return str(node.op if answer is None else answer.op or node.op)


def attributes_of_copies(node: NodeDef, answer: Split | None) -> dict[str, AttrValue]:
    """{name: AttrValue} of an op's copies, or of the op where there is no answer."""
    if answer is None:
        return {**node.attr}
    return {**({} if answer.op else node.attr), **answer.attrs}


@dataclasses.dataclass(frozen=True)
class StayWhole:
    """An op stays one op; its inputs are joined or summed.

    Attributes:
      reason: why it is not split, a sentence that a person understands; empty where nothing
        that it reads is split.
      outputs: of an op that could be split: the states that its outputs would have; what is
        sharded among them is cut for ops that read parts. Empty for all others.
      opened: {attribute that names a function: what becomes of it}, by which the shapes of what it
        makes are known.
    """

    reason: str = ""
    opened: Mapping[str, "DecidedFunction"] = dataclasses.field(default_factory=dict, compare=False)
    outputs: tuple[State, ...] = ()


Answer = Split | StayWhole


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedGraph:
    """What becomes of a graph: of a step, or of a function that a split op runs."""

    facts: Facts  # what is known of its tensors
    answer_of_op: Mapping[str, Answer]  # {op: what becomes of it}
    state_of_tensor: Mapping[str, State]  # {"op:i": state}

    def read_as(self, tensor: str, need: State) -> State:
        """The state in which a reader that needs this one gets a tensor.

        Whoever takes an Optional of any branch gets this branch's.
        """
        is_any = isinstance(need, Optioned) and need.held is None
        return self.state_of_tensor[tensor] if is_any else need


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedFunction(DecidedGraph):
    """What becomes of a function that a split op runs."""

    body: Body  # the function
    results: Sequence[State]  # the state in which each output is handed on
    outer: Facts | None = None  # of the graph in which a conditional or a call runs it

    def __eq__(self, other: object) -> bool:
        """Whether the same becomes of the same ops, be it at another batch size."""
        return (
            isinstance(other, DecidedFunction)
            and self.body.function == other.body.function
            and self.answer_of_op == other.answer_of_op
            and tuple(self.results) == tuple(other.results)
        )

    __hash__ = None  # type: ignore[assignment]


def states_of(answer: Split) -> list[State]:
    """All states that the copies are told of."""
    told = [state for entries in answer.shape_inputs.values() for state in entries.values()]
    return [*answer.inputs, *answer.outputs, *told]


def answer_seen_twice(one: Answer, two: Answer) -> Answer:
    """See seen_twice; of an op that runs functions or names rows each number has to be fixed."""
    if not isinstance(one, Split) or not isinstance(two, Split) or one.bodies or one.row_inputs:
        return one
    pairs = [*map(seen_twice, states_of(one), states_of(two))]
    if not any(isinstance(state, Sharded) and state.is_any for state in pairs):
        return one
    return _with_states(one, pairs)


def is_same_answer(one: Answer, two: Answer) -> bool:
    """See is_same."""
    if not isinstance(one, Split) or not isinstance(two, Split):
        return one == two
    both = states_of(one), states_of(two)
    return (
        len(both[0]) == len(both[1])
        and all(map(is_same, *both))
        and (_with_states(two, both[0]) == one)
    )


def _with_states(answer: Split, states: Sequence[State]) -> Split:
    left = iter(states)
    inputs, outputs = (tuple(next(left) for _ in each) for each in (answer.inputs, answer.outputs))
    told: Any = {position: {entry: next(left) for entry in entries}
                 for position, entries in answer.shape_inputs.items()}  # fmt: skip
    return dataclasses.replace(answer, inputs=inputs, outputs=outputs, shape_inputs=told)


@dataclasses.dataclass(frozen=True)
class AskedShape:
    """What a run has to feed for an input, though the model says less."""

    shape: Sequence[int]  # that the step was decided for
    axes: Sequence[int]  # which of its sizes have to be these
    any_rank: bool  # whether the model leaves open how many there are


MOST_BYTES = 1 << 15
"""Larger tensors take longer to send than a message takes to arrive."""

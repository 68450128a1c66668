"""Proves that a split step reads, joins, sums, cuts and waits where what was decided says so.

Every op of the unsplit step must be there exactly once, whole or in M copies, with its attributes
but for those that were decided; each copy must read its own parts, or whole tensors; whatever else
there is must be a join, a sum, a cut, a weight or a number that makes one of these of another.
Nothing of `build_step` is used but which ops it says are the copies of which.

A step of any batch size is proven at several. At one size two shards may have as many entries, so
that what reads one of them for the other is not noticed. Shards m - 1 and m differ where m is what
is left over when the batch is divided.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.graph_view import GraphView
from graphs.names import data_inputs, parse_input, tensor_of
from graphs.protos import GraphDef
from rewrite.pass_base import RewriteError
from rewrite.split.any_batch.data_dependent_ranks import forgetting_ranks
from rewrite.split.any_batch.open_step import OpenStep
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.decision import Split, StayWhole, is_same_answer
from rewrite.split.effects import has_effect
from rewrite.split.pieces.convert import without_conversion
from rewrite.split.prove.structure.check_functions import FunctionProver
from rewrite.split.prove.structure.check_op import OpChecks
from rewrite.split.prove.structure.step_reading import StepReading, numbers
from rewrite.split.reading.runs_before import bits, runs_before
from rewrite.split.split_step import SplitStep
from rewrite.split.states import WHOLE, is_same, shard_sizes

# Proves that a split step refuses what it was not decided for, before it changes anything.
#
# What it was decided for must pass. Fewer entries than shards, an input that is not as large as the
# others, and sizes that only the model leaves open must not.

_Shapes = Mapping[str, tuple[int, ...]]


def require_refusals(
    decisions: Decisions, reading: StepReading, graph_def: GraphDef, count: int
) -> None:
    """Raises RewriteError where a run is refused that must not be, or one is not that must be.

    Args:
      reading: of the split step, `graph_def`.
      count: into how many parts it is split.
    """
    if _refuses(reading, {}):
        raise RewriteError("reading a split step: it refuses what it was decided for")
    for shapes in _others(decisions, reading, count):
        if not _refuses(reading, shapes):
            raise RewriteError(f"reading a split step: it takes inputs of the shapes {shapes}")
    if not reading.asserts:
        return
    bit_of = bits(reading.asserts)
    before = runs_before(graph_def, bit_of, is_opened=True)
    earlier, functions = GraphView(graph_def).ancestors(reading.asserts), library_of(graph_def)
    for node in graph_def.node:
        is_late = before[node.name] == sum(bit_of.values()) or node.name in earlier
        if not is_late and has_effect(node, functions):
            raise RewriteError(f"reading a split step: {node.name!r} doesn't wait for refusals")


def _others(decisions: Decisions, reading: StepReading, count: int) -> Iterator[_Shapes]:
    """Shapes of what is fed, each of which has to be refused."""
    asked, following = decisions.asked_of_feed, decisions.following

    def changed(tensor: str, sizes: Mapping[int, int]) -> tuple[int, ...]:
        shape = reading.facts.shape(tensor)
        return tuple(sizes.get(axis, size) for axis, size in enumerate(shape or ()))

    alone = [(t, axis, size) for t, sizes in following.items() for axis, size in sizes.items()]
    alone = alone if len(alone) > 1 else []
    alone += [(t, axis, each.shape[axis]) for t, each in asked.items() for axis in each.axes]
    for tensor, axis, size in alone:
        yield {tensor: changed(tensor, {axis: size + 1})}
    for tensor, each in asked.items():
        if each.any_rank:
            yield {tensor: (*each.shape, 1)}
    if decisions.is_open and decisions.axis_of_feed:
        of_batch = {t: {a: changed(t, {})[a]} for t, a in decisions.axis_of_feed.items()}
        yield {
            tensor: changed(
                tensor, {a: size * (count - 1) // decisions.batch for a, size in sizes.items()}
            )
            for tensor, sizes in {**of_batch, **following}.items()
        }


def _refuses(reading: StepReading, shapes: _Shapes) -> bool:
    """Whether any assertion fails where inputs have these shapes, and others their own."""
    made: dict[str, list[np.ndarray]] = {}

    def value(name: str) -> np.ndarray:
        source = parse_input(name)
        if source.op not in made:
            node = reading.nodes[source.op]
            if node.op in ("Shape", "Rank"):
                tensor = tensor_of(node.input[0])
                shape = np.array(shapes.get(tensor, reading.facts.shape(tensor)), np.int32)
                made[source.op] = [shape if node.op == "Shape" else np.array(len(shape), np.int32)]
            else:
                made[source.op] = numbers(node, [value(each) for each in data_inputs(node)])
        return made[source.op][source.output]

    conditions = [value(reading.nodes[name].input[0]) for name in reading.asserts]
    if any(each.shape or each.dtype != bool for each in conditions):
        raise RewriteError("reading a split step: it asserts what is no condition")
    return not all(conditions)


_ROUNDS = 3
"""Sizes of one remainder that are tried: at some a number may look like another one."""


@dataclasses.dataclass(frozen=True)
class JointsProof:
    """What stands in a split step.

    Attributes:
      whole_ops: ops that are there once.
      split_ops: ops that are there once per shard.
      joins, sums, cuts: tensors that are joined, combined, cut.
      exact: {constant: the share of the batch that it is rounded from}.
      batches: at which batch sizes that was read.
    """

    whole_ops: int
    split_ops: int
    joins: int
    sums: int
    cuts: int
    exact: Mapping[str, float]
    batches: Sequence[int]


def prove_joints(flat: FlatGraph, decisions: Decisions, step: SplitStep, count: int) -> JointsProof:
    """Compares a split step with the unsplit one and what was decided.

    Numbers are compared at the batch size of `decisions`; a step that takes any size is proven for
    another one by asking again with those of that size.

    Args:
      step: the split step, before it is placed.
      count: into how many shards it is split.

    Raises:
      RewriteError: an op is missing, or something reads, joins, sums, cuts or waits otherwise.
    """
    graph_def = step.graph_def
    if len({node.name for node in graph_def.node}) < len(graph_def.node):
        raise RewriteError("reading a split step: two of its ops have one name")
    if not _has_its_functions(flat, decisions, graph_def):
        raise RewriteError("reading a split step: its functions are not those that it had")
    sizes = shard_sizes(decisions.batch, count)
    try:
        reading = StepReading(flat, decisions, graph_def, sizes, step.copies)
        checks = OpChecks(reading, FunctionProver(library_of(graph_def), sizes).op)
        for node in flat.graph_def.node:
            checks.op(node)
        for before, after in zip(flat.fetches, step.fetches, strict=True):
            _require_fetch(checks, reading, before, after)
        require_refusals(decisions, reading, graph_def, count)
    except (ModelError, ValueError, TypeError, LookupError) as error:  # of no sound graph
        raise RewriteError(f"reading a split step: it makes no sense: {error}") from error
    found = reading.reader.found
    return JointsProof(
        len(flat.nodes) - len(reading.copies), len(reading.copies),
        len(found["join"]), len(found["sum"]), len(found["cut"]), reading.reader.exact,
        [decisions.batch],
    )  # fmt: skip


def _require_fetch(checks: OpChecks, reading: StepReading, before: str, after: str) -> None:
    """Raises RewriteError unless a fetch gives what it gave, or runs what it ran."""
    if ":" in before:
        checks.reads("a fetch", after, tensor_of(before), WHOLE, None)
        return
    ops, node = checks.ops_for(before, None), reading.nodes.get(after)
    waits = [] if node is None or node.op != "NoOp" else list(node.input)
    if {after} != ops and set(waits) != {f"^{op}" for op in ops}:
        raise RewriteError(f"reading a split step: fetching {after!r} doesn't run {before!r}")


def _has_its_functions(flat: FlatGraph, decisions: Decisions, graph_def: GraphDef) -> bool:
    """Whether all functions are as they were; only copies of loops and calls may have more."""
    before, after = flat.graph_def, graph_def
    if decisions.pieces:
        after = without_conversion(after, decisions.pieces)
    answers = decisions.answer_of_op.values()
    if any(isinstance(answer, Split) and answer.bodies for answer in answers):
        there = library_of(after)
        return all(there.get(name) == function for name, function in flat.library.items())
    return bool(before.library == after.library and before.versions == after.versions)


def prove_sizes(
    flat: FlatGraph, decisions: Decisions, step: SplitStep, count: int, seconds: float
) -> JointsProof:
    """Compares a split step with the unsplit one; one of any batch size at several sizes.

    Args:
      flat, decisions, step, count: as for `prove_joints`.
      seconds: after which no further size is begun.

    Raises:
      RewriteError: something stands wrong.
    """
    end = time.monotonic() + seconds
    proof = prove_joints(flat, decisions, step, count)
    batches = [decisions.batch]
    for others in other_sizes(flat, decisions, count, end):
        prove_joints(flat, others, step, count)
        batches.append(others.batch)
    return dataclasses.replace(proof, batches=batches)


def other_sizes(
    flat: FlatGraph, decisions: Decisions, count: int, end: float = math.inf
) -> Iterator[Decisions]:
    """What was decided, at sizes that leave over something else; none is begun after `end`."""
    if decisions.pieces and decisions.is_open:
        tries = (decided_at(flat, decisions, more) for more in range(1, _ROUNDS + 1))
        other = next(filter(None, tries), None)
        if other is None:
            raise RewriteError("reading a split step: it takes any size, but is known at one only")
        yield other
        return
    missing = set(range(1, count)) - {decisions.batch % count}
    for more in range(1, _ROUNDS * count) if decisions.takes_any_batch else ():
        left_over = (decisions.batch + more) % count
        if left_over in missing and time.monotonic() < end:
            found = decided_at(flat, decisions, more)
            if found is not None:
                missing.remove(left_over)
                yield found


def decided_at(flat: FlatGraph, decisions: Decisions, more: int) -> Decisions | None:
    """The same decisions at another size; None where a number looks like another one there."""
    larger = OpenStep(
        forgetting_ranks(flat, decisions.unsure_ranks),
        decisions.properties,
        decisions.batch,
        decisions.axis_of_feed,
        decisions.open_axes,
    ).larger(more)
    if larger is None:
        return None
    answers = decisions.answer_of_op
    # Without a reason they stay whole by themselves, or are repeated where all of them may be.
    whole = ((name, a.reason) for name, a in answers.items() if isinstance(a, StayWhole))
    others = decide(
        larger.flat,
        larger.properties,
        decisions.batch if decisions.pieces else larger.batch,
        larger.axis_of_feed,
        {name: reason for name, reason in whole if reason},
        not_cut=decisions.not_cut,
        pieces=decisions.pieces,
    )
    states = decisions.state_of_tensor
    if not all(is_same(state, others.state_of_tensor[name]) for name, state in states.items()):
        return None
    if not all(is_same_answer(each, others.answer_of_op[name]) for name, each in answers.items()):
        return None
    return dataclasses.replace(others, is_open=True, open_axes=decisions.open_axes)

"""Decides for a step that takes any batch size: what holds for one size has to hold for others."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from graphs.building.shapes import TensorProperties, infer_known
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, tensor_of
from graphs.protos import NodeDef, Nodes
from graphs.source_model import TensorSpec
from rewrite.split.any_batch.bounded_sizes import of_bounded_sizes
from rewrite.split.any_batch.data_dependent_ranks import (
    UNSURE_RANK,
    forgetting_ranks,
    ops_of_unsure_rank,
)
from rewrite.split.any_batch.other_sizes import (
    at_far_size,
    at_least_size,
    at_other_lengths,
    following,
    has_parts,
    larger_step,
    of_another_size,
    of_any_size,
)
from rewrite.split.constant_folding import KnownValues
from rewrite.split.decide.decide import Decisions, decide
from rewrite.split.decide.per_example_rows import is_counted
from rewrite.split.decision import DecidedFunction, Split, answer_seen_twice, is_same_answer
from rewrite.split.functions import Bodies
from rewrite.split.states import Sharded, State, is_same, seen_twice

DIFFERS = "what becomes of it is not the same for every batch size"
ROWS_BY_NUMBER = "its row numbers depend on where in the batch a shard begins, of any batch size"
OTHER_DIMENSION = "another dimension than the batch is open, too"
_MORE_ENTRIES = 3

_Step = tuple[FlatGraph, TensorProperties]
_OtherSize = tuple[Mapping[str, int], Mapping[str, Sequence[int]], int, _Step]


def decide_open(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    kept_whole: Mapping[str, str] | None = None,
    left_whole: Collection[str] = (),
    bodies: Bodies | None = None,
) -> Decisions | None:
    """Decides twice, at two sizes of everything that is open, and keeps what agrees.

    A number in the graph that only happens to be the batch's size is told apart by this, and so
    is a shape that happens to look like another one. What was found is held against the shapes at
    a much larger size, where a number that is bounded (the first hundred rows) or a remainder is
    no longer the batch's, and at few and many of what else is open: of a window of six steps or
    seven, the first four are as many.

    Args:
      flat, properties, batch, axis_of_feed, kept_whole, left_whole, bodies: as for `decide`, at
        one batch size.
      open_axes: {fed tensor: its axes of any size}.

    Returns:
      The decisions; of any batch size where the step runs with another one, else of this one, and
      of any size of what else is open. None where nothing that is open can have another size.
    """
    for other in _other_sizes(flat, batch, axis_of_feed, open_axes):
        decisions = _decide_with(
            flat, properties, batch, other, kept_whole or {}, left_whole, bodies
        )
        if decisions is not None:
            return decisions
    return None


def _decide_with(
    flat: FlatGraph,
    properties: TensorProperties,
    batch: int,
    other: _OtherSize,
    kept_whole: Mapping[str, str],
    left_whole: Collection[str],
    bodies: Bodies | None,
) -> Decisions | None:
    """See `decide_open`; None where the step turns out not to run at the other size."""
    axis_of_feed, open_axes, more, larger = other
    sizes = functools.partial(_sizes, flat, batch, axis_of_feed, open_axes, larger[0])
    both = (batch, properties), (batch + more, larger[1])
    unsure = ops_of_unsure_rank(flat, lambda: [*both, *sizes()])
    if unsure:
        flat = forgetting_ranks(flat, unsure)
        properties, again = infer_known(flat), larger_step(flat, axis_of_feed, open_axes, more)
        assert again is not None  # it ran when more was known
        larger = again
    other_flat, other_properties = larger
    kept_whole, not_cut = {**kept_whole, **dict.fromkeys(unsure, UNSURE_RANK)}, set[str]()
    along = following(flat, other_flat, axis_of_feed)
    far = at_far_size(flat, batch, axis_of_feed, open_axes) if more else None
    others = _without(open_axes, along)
    lengths, are_held = at_other_lengths(flat, others), False
    decided = functools.partial(
        decide,
        axis_of_feed=axis_of_feed,
        kept_whole=kept_whole,
        left_whole=left_whole,
        bodies=bodies or Bodies(flat.graph_def),
    )
    values = [KnownValues(*step) for step in ((flat, properties), larger, *lengths)]

    def with_more(step: FlatGraph) -> Decisions | None:
        """At more entries of the batch, and of nothing else."""
        axes = {feed: [*each] for feed, each in along.items()}
        longer = larger_step(step, axis_of_feed, axes, more) if more else None
        return None if longer is None else decided(*longer, batch + more, not_cut=not_cut)

    while True:
        first = decided(flat, properties, batch, not_cut=not_cut, values=values[0])
        second = decided(
            other_flat, other_properties, batch + more, not_cut=not_cut, values=values[1]
        )
        if not second.refused <= first.refused:
            return None
        first = _seen_twice(first, second)
        grown = (with_more(flat) if any(others.values()) else None) or second
        not_the_batch = (
            _cut_at_one_size(flat, first, second)
            or of_another_size(flat, first, far)
            or of_bounded_sizes(flat, first, grown)
            or _cut_though_open_elsewhere(flat, first, second)
        )
        if not_the_batch:
            not_cut |= not_the_batch
            kept_whole.update(_split_among(not_the_batch, first))
            continue
        differing = {
            node.name: why
            for node in flat.graph_def.node
            if node.name not in kept_whole and (why := _difference(flat.nodes, node, first, second))
        }
        if not differing:
            at_lengths = [
                decided(*step, batch, not_cut=not_cut, values=known)
                for step, known in zip(lengths, values[2:], strict=True)
            ]
            if not are_held and any(not at.refused <= first.refused for at in at_lengths):
                lengths, are_held = _lengths_that_run(flat, others, first, decided), True
                values[2:] = [KnownValues(*step) for step in lengths]
                continue
            first = functools.reduce(_seen_twice, at_lengths, first)
            for at, (step, _) in zip(at_lengths, lengths, strict=True):
                if (longer := with_more(step)) is not None:
                    not_the_batch |= of_bounded_sizes(flat, at, longer)
                not_the_batch |= of_another_size(flat, first, (batch, at.properties))
                not_the_batch |= _cut_though_open_elsewhere(flat, first, at)
                differing.update(_of_other_length(flat, first, at))
            not_cut |= not_the_batch
            differing.update(_split_among(not_the_batch, first))
            if not differing and not not_the_batch:
                return dataclasses.replace(
                    first,
                    is_open=True,
                    open_axes=dict(open_axes),
                    unsure_ranks=unsure,
                    following=along,
                    any_shapes=of_any_size(flat, open_axes),
                )
        kept_whole.update(differing)


def _seen_twice(first: Decisions, second: Decisions) -> Decisions:
    """The first decisions; where entries have more elements each in the second, that is any number.

    A sequence's steps lie one behind another in [entries * steps, d].
    """
    answers, states = second.answer_of_op, second.state_of_tensor
    return dataclasses.replace(
        first,
        answer_of_op={
            op: answer_seen_twice(answer, answers[op]) for op, answer in first.answer_of_op.items()
        },
        state_of_tensor={
            tensor: seen_twice(state, states[tensor])
            for tensor, state in first.state_of_tensor.items()
        },
    )


def _lengths_that_run(
    flat: FlatGraph,
    axes: Mapping[str, Sequence[int]],
    first: Decisions,
    decided: Callable[..., Decisions],
) -> list[_Step]:
    """As `at_other_lengths`; behind loops only what becomes of the ops there shows what runs."""
    return at_other_lengths(
        flat, axes, lambda *step: decided(*step, first.batch).refused <= first.refused
    )


def _sizes(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
    larger: FlatGraph,
) -> list[tuple[int, TensorProperties]]:
    """Batches, and the step's tensors: at few and many entries, and of what else is open."""
    along = following(flat, larger, axis_of_feed)
    ends = []
    if along:
        ends = [each(flat, batch, axis_of_feed, open_axes) for each in (at_far_size, at_least_size)]
    lengths = at_other_lengths(flat, _without(open_axes, along))
    return [each for each in ends if each is not None] + [(batch, each[1]) for each in lengths]


def _of_other_length(flat: FlatGraph, first: Decisions, at: Decisions) -> dict[str, str]:
    """{split op: why it can't be} of those that would not be as they are with that much else."""
    found = {}
    inside = _with_factors(first)
    for node in flat.graph_def.node:
        one = first.answer_of_op[node.name]
        if not isinstance(one, Split):
            continue
        states = [*_states(node, one)]
        is_any = any(isinstance(state, Sharded) and state.is_any for _, state in states)
        other = at.answer_of_op[node.name]
        if any(_is_open_elsewhere(*each, first.properties, at.properties) for each in states):
            found[node.name] = OTHER_DIMENSION
        elif ((is_any or node.name in inside) and not is_same_answer(one, other)) or not all(
            has_parts(at.properties.shape(tensor), state, first.batch) for tensor, state in states
        ):
            found[node.name] = DIFFERS
    return found


def _states(node: NodeDef, answer: Split) -> Iterator[tuple[str, State]]:
    """The tensors that an op reads and makes, and how its copies do."""
    yield from zip(map(tensor_of, data_inputs(node)), answer.inputs, strict=True)
    yield from ((f"{node.name}:{i}", state) for i, state in enumerate(answer.outputs))


def _without(
    open_axes: Mapping[str, Sequence[int]], along: Mapping[str, Collection[int]]
) -> dict[str, list[int]]:
    return {
        feed: [axis for axis in axes if axis not in along.get(feed, ())]
        for feed, axes in open_axes.items()
    }


def _other_sizes(
    flat: FlatGraph,
    batch: int,
    axis_of_feed: Mapping[str, int],
    open_axes: Mapping[str, Sequence[int]],
) -> Iterator[_OtherSize]:
    """Inputs that hold the batch, what is open, so many more entries, and the step with these.

    The first with which the step runs is to be taken. An input of a fixed size is no part of a
    batch of any size.
    """
    growing = {feed: a for feed, a in axis_of_feed.items() if a in open_axes.get(feed, ())}
    # Twice the batch is as many pairs, of whatever it may be. Nothing else need have another size.
    alone = {feed: [axis] for feed, axis in growing.items()}
    for axes, more in itertools.product((open_axes, alone), (_MORE_ENTRIES, batch)):
        larger = larger_step(flat, growing, axes, more) if growing else None
        if larger is not None:
            yield growing, _tried(flat, larger[0], axes), more, larger
    others = {
        feed: [axis for axis in axes if axis != axis_of_feed.get(feed)]
        for feed, axes in open_axes.items()
    }
    larger = larger_step(flat, axis_of_feed, others, 0)
    if larger is not None and list(larger[0].feeds) != list(flat.feeds):
        yield axis_of_feed, _tried(flat, larger[0], others), 0, larger


def _tried(
    flat: FlatGraph, larger: FlatGraph, open_axes: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The open axes that have another size in the larger step."""
    found = {}
    for spec, other in zip(flat.feeds, larger.feeds, strict=True):
        before, after = spec.shape or (), other.shape or ()
        axes = [a for a in open_axes.get(spec.tensor, ()) if before[a] != after[a]]
        found.update({spec.tensor: axes} if axes else {})
    return found


def _cut_at_one_size(flat: FlatGraph, first: Decisions, second: Decisions) -> set[str]:
    """Whole ops that make as many rows as the batch has, at one of two sizes only."""
    return {
        node.name
        for node in flat.graph_def.node
        if not any(isinstance(d.answer_of_op[node.name], Split) for d in (first, second))
        and any(
            not is_same(*(d.state_of_tensor[f"{node.name}:{i}"] for d in (first, second)))
            for i in range(len(first.properties.dtype_of[node.name]))
        )
    }


def _cut_though_open_elsewhere(flat: FlatGraph, first: Decisions, second: Decisions) -> set[str]:
    """Whole ops whose outputs no part could be taken of; see OTHER_DIMENSION."""
    outputs = {
        f"{name}:{index}": name
        for name, dtypes in first.properties.dtype_of.items()
        if name in first.answer_of_op and not isinstance(first.answer_of_op[name], Split)
        for index in range(len(dtypes))
    }
    return {
        name
        for tensor, name in outputs.items()
        if _is_open_elsewhere(
            tensor, first.state_of_tensor[tensor], first.properties, second.properties
        )
    }


def _with_factors(decisions: Decisions) -> set[str]:
    """Ops that run functions in which the batch is a factor of a dimension."""
    return {
        name
        for name, answer in decisions.answer_of_op.items()
        if isinstance(answer, Split) and any(map(_has_factors, answer.bodies.values()))
    }


def _has_factors(body: DecidedFunction) -> bool:
    inner = [each for answer in body.answer_of_op.values() if isinstance(answer, Split)
             for each in answer.bodies.values()]  # fmt: skip
    return any(map(_has_factors, inner)) or any(
        isinstance(state, Sharded) and state.size(1) != 1 for state in body.state_of_tensor.values()
    )


def _split_among(names: Collection[str], decisions: Decisions) -> dict[str, str]:
    """{op: why it must not be} of those that are split."""
    answers = decisions.answer_of_op
    return {name: DIFFERS for name in names if isinstance(answers[name], Split)}


def _difference(nodes: Nodes, node: NodeDef, first: Decisions, second: Decisions) -> str:
    """Why an op can't be split for every size; empty where it can, or stays whole."""
    one, two = first.answer_of_op[node.name], second.answer_of_op[node.name]
    if not isinstance(one, Split):
        return DIFFERS if isinstance(two, Split) else ""
    if not isinstance(two, Split) or not is_same_answer(one, two):
        return DIFFERS
    data = data_inputs(node)
    rows = [tensor_of(data[position]) for position in one.row_inputs]
    if not all(is_counted(nodes, each, first.values.value) for each in rows):
        return ROWS_BY_NUMBER
    for position, entries in one.shape_inputs.items():
        for entry in entries:
            for at, answer in ((first, one), (second, two)):
                state = answer.shape_inputs[position][entry]
                value = at.values.value(tensor_of(data[position]))
                size = None if value is None else int(value.reshape(-1)[entry])
                if size not in (-1, state.size(at.batch)):
                    return DIFFERS
    for tensor, each in _states(node, one):
        if _is_open_elsewhere(tensor, each, first.properties, second.properties):
            return OTHER_DIMENSION
    return ""


def _is_open_elsewhere(
    tensor: str, state: State, properties: TensorProperties, other: TensorProperties
) -> bool:
    """Whether a tensor whose parts are taken apart by their shape has no such fixed shape."""
    if not isinstance(state, Sharded) or state.outer == 1:
        return False
    shapes = [each.shape(tensor) or () for each in (properties, other)]
    return [s for a, s in enumerate(shapes[0]) if a != state.axis] != [
        s for a, s in enumerate(shapes[1]) if a != state.axis
    ]


def open_axes_of(
    declared: Mapping[str, Sequence[int] | None], feeds: Sequence[TensorSpec]
) -> dict[str, list[int]]:
    """{fed tensor: axes of any size}, of what a model declares.

    Args:
      declared: {fed op: its shape, -1 for any size; None for any rank}.
      feeds: what a run is fed, with complete shapes.
    """
    found = {}
    for spec in feeds:
        shape = declared.get(op_of(spec.tensor), spec.shape)
        sizes = [-1] * len(spec.shape or ()) if shape is None else shape
        axes = [axis for axis, size in enumerate(sizes) if size < 0]
        if axes:
            found[spec.tensor] = axes
    return found

"""Proves that a split step refuses what it was not decided for, before it changes anything.

What it was decided for must pass. Fewer entries than shards, an input that is not as large as the
others, and sizes that only the model leaves open must not.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from graphs.function_library import library_of
from graphs.graph_view import GraphView
from graphs.names import data_inputs, parse_input, tensor_of
from graphs.protos import GraphDef
from rewrite.pass_base import RewriteError
from rewrite.split.decide.decide import Decisions
from rewrite.split.effects import has_effect
from rewrite.split.prove.structure.step_reading import StepReading, numbers
from rewrite.split.reading.runs_before import bits, runs_before

_Shapes = Mapping[str, tuple[int, ...]]


def require_refusals(
    decisions: Decisions, reading: StepReading, graph_def: GraphDef, count: int
) -> None:
    """Raises RewriteError where a run is refused that must not be, or one is not that must be.

    Args:
      decisions: what the step was decided for.
      reading: of the split step, `graph_def`.
      graph_def: a GraphDef.
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
    if decisions.is_open:
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

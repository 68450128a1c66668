"""A batch that is refused changes nothing.

A step that takes any batch size asserts that there is an entry for each shard. What it makes of
the batch waits for that by way of the cuts. A counter of steps would count all the same, and a
generator draw, so that the same batch given to the unsplit step would train differently.

What the model leaves open and no other size was found for (a window of odd length, a rank) is as
it was when the step was decided: numbers that follow from it are constants. So a run that feeds
something else is refused, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs import op_types
from graphs.building.frames import loop_of
from graphs.graph_view import GraphView
from graphs.names import op_of
from graphs.protos import GraphDef, Library
from graphs.source_model import TensorSpec
from rewrite.split.decision import AskedShape
from rewrite.split.effects import has_effect
from rewrite.split.node_writer import NodeWriter
from rewrite.split.reading.runs_before import runs_before


def asked_of_feeds(
    feeds: Sequence[TensorSpec],
    declared: Mapping[str, Sequence[int] | None],
    left_open: Mapping[str, Sequence[int]],
    tried: Mapping[str, Sequence[int]],
) -> dict[str, AskedShape]:
    """{fed tensor: what a run has to feed for it} of those of which the model says less.

    Of a tensor that is fed though an op makes it, the model says nothing.

    Args:
      feeds: what the step was decided for.
      declared: {fed op: its shape as the model has it; None for any rank}.
      left_open: {fed tensor: axes of any size}, as the model has it.
      tried: the same, as far as the step was decided for several sizes.
    """
    asked = {}
    for spec in feeds:
        any_rank = declared.get(op_of(spec.tensor)) is None
        is_made = op_of(spec.tensor) not in declared
        says_less = range(len(spec.shape or ())) if is_made else left_open.get(spec.tensor, ())
        rest = {*says_less} - {*tried.get(spec.tensor, ())}
        if rest or any_rank:
            asked[spec.tensor] = AskedShape(spec.shape or (), sorted(rest), any_rank)
    return asked


def refuse_other_shapes(
    writer: NodeWriter, asked: Mapping[str, AskedShape], dtype_of: Callable[[str], str], advice: str
) -> list[str]:
    """Adds the assertions that inputs have the shapes that are asked for; returns their names."""
    found: list[str] = []
    for tensor, each in asked.items():
        writer.origin, dtype = op_of(tensor), dtype_of(tensor)
        shape = writer.op("Shape", "split/fed_shape", [tensor], T=dtype, out_type="int32")
        sizes = {}
        if each.any_rank:
            rank = writer.op("Rank", "split/fed_rank", [tensor], T=dtype)
            sizes[rank] = len(each.shape)
        for axis in each.axes:
            sizes[_size(writer, shape, axis)] = each.shape[axis]
        wanted = [size if axis in each.axes else None for axis, size in enumerate(each.shape)]
        text = (
            f"input {op_of(tensor)!r} is split for the shape "
            f"{str(wanted).replace('None', 'any')} only: {advice}; shape:"
        )
        for size, number in sizes.items():
            same = [size, writer.shared_const(np.array(number, np.int32))]
            is_same = writer.op("Equal", "split/as_asked", same, T="int32")
            found.append(assertion(writer, is_same, text, shape, found[-1:]))
    return found


def refuse_other_batches(
    writer: NodeWriter,
    following: Mapping[str, Mapping[int, int]],
    batch: tuple[str, int],
    dtype_of: Callable[[str], str],
    advice: str,
    after: Sequence[str] = (),
) -> list[str]:
    """Adds the assertions that inputs hold as much as the batch has; returns their names.

    Args:
      following: see Decisions.
      batch: the first input, and which of its axes is the batch.
      dtype_of: of a tensor.
      advice: what to do with what is refused.
      after: an assertion that comes before.
    """
    if sum(map(len, following.values())) < 2:
        return []
    found, (first, its_axis) = list(after), batch
    entries, of_batch = "", following[first][its_axis]
    for tensor, sizes in following.items():
        writer.origin, shape = op_of(tensor), ""
        for axis, size in sizes.items():
            shape = shape or writer.op(
                "Shape", "split/fed_shape", [tensor], T=dtype_of(tensor), out_type="int32"
            )
            own = _size(writer, shape, axis)
            if (tensor, axis) == batch:
                entries = own
                continue
            common = math.gcd(size, of_batch)
            same = [
                _times(writer, own, of_batch // common),
                _times(writer, entries, size // common),
            ]
            text = (
                f"input {op_of(tensor)!r} is split along with {op_of(first)!r} and has to have "
                f"{_ratio(size // common, of_batch // common)} entries in dimension {axis}: "
                f"{advice}; shape:"
            )
            is_same = writer.op("Equal", "split/as_batch", same, T="int32")
            found.append(assertion(writer, is_same, text, shape, found[-1:]))
    return found[len(after) :]


def _ratio(times: int, by: int) -> str:
    return "as many" if times == by else f"{times}/{by} times as many"


def _times(writer: NodeWriter, size: str, number: int) -> str:
    if number == 1:
        return size
    factor = writer.shared_const(np.array(number, np.int32))
    return writer.op("Mul", "split/fed_times", [size, factor], T="int32")


def _size(writer: NodeWriter, shape: str, axis: int) -> str:
    """A scalar: one entry of a shape."""
    at = [shape, *(writer.shared_const(np.array([n], np.int32)) for n in (axis, 1))]
    size = writer.op("Slice", "split/fed_size", at, T="int32", Index="int32")
    return writer.op("Squeeze", "split/fed_size", [size], T="int32")


def assertion(
    writer: NodeWriter, condition: str, text: str, numbers: str, after: Sequence[str] = ()
) -> str:
    """Adds an Assert that says a text and i4 numbers; `after` are ops that it waits for."""
    data = [condition, writer.shared_const(np.array(text, object)), numbers]
    name = writer.free_name("split/assert")
    asserted = writer.node("Assert", name, [*data, *(f"^{op}" for op in after)])
    asserted.attr["T"].list.type.extend([7, 3])  # a string, an int32
    asserted.attr["summarize"].i = 3
    return name


def have_effects_wait(
    graph_def: GraphDef, refusal: str, library: Library, unit_of_node: Mapping[str, str]
) -> None:
    """Gives each op with an effect a control edge from the assertion, unless it waits anyway.

    In the frame of a loop of TensorFlow 1 no op can wait for one outside: all that enters waits.

    Args:
      graph_def: a split step, changed.
      refusal: its assertion that the batch has enough entries.
      unit_of_node: see FlatGraph.
    """
    view = GraphView(graph_def)
    before = runs_before(graph_def, {refusal: 1}, is_opened=True)
    settled = {*view.ancestors([refusal]), *(name for name, bit in before.items() if bit)}
    loops: set[str] = set()
    for node in graph_def.node:
        if node.name in settled or not has_effect(node, library):
            continue
        if loop := loop_of(node.name, unit_of_node):
            loops.add(loop)
        else:
            node.input.append(f"^{refusal}")
    for node in graph_def.node if loops else ():
        if node.op not in op_types.ENTER or node.name in settled:
            continue
        sources = {loop_of(op_of(name), unit_of_node) for name in node.input}
        if (loop := loop_of(node.name, unit_of_node)) in loops and loop not in sources:
            node.input.append(f"^{refusal}")

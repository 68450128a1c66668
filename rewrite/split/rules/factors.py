"""Rules as data: which dimensions of an op's inputs and outputs run along together.

A factor is a label that dimensions share, as the letters of an einsum do. An op whose inputs are
sharded along one factor can work on the parts alone: an output with that factor is sharded along
it, an output without is partial, if the op reduces the factor in a way that can be done in parts.
(Shardy describes ops in the same way: https://openxla.org/shardy/sharding_propagation.)
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.op_view import OpView
from rewrite.split.states import SUM, WHOLE, Partial, Sharded, State

ACROSS = StayWhole("it works across the batch, along the axis that is cut")
Labels = Sequence[str | None]


def axes(rank: int, but: Collection[int] = ()) -> list[str | None]:
    """A label for each dimension of a tensor: d0, d1, ...; None for those that can't be cut."""
    return [None if axis in but else f"d{axis}" for axis in range(rank)]


def cut(labels: Labels) -> list[str | None]:
    """The labels of the dimensions that can be cut."""
    return [label for label in labels if label is not None]


def broadcast(shape: Sequence[int], result: Sequence[int]) -> list[str | None]:
    """Labels of an operand that is broadcast to `result`; a stretched dimension has none."""
    offset = len(result) - len(shape)
    stretched = {axis for axis, size in enumerate(shape) if size != result[offset + axis]}
    return axes(len(result), {offset + axis for axis in stretched})[offset:]


def split_by_factors(
    view: OpView,
    inputs: Sequence[Labels | None],
    outputs: Sequence[Labels],
    combine: str = "",
    adds_up: bool = False,
    shape_inputs: Mapping[int, int] | None = None,
) -> Answer:
    """The answer of a rule that is given as factors.

    Args:
      inputs: for each data input a label for each dimension; None for a dimension that can't be
        cut (or that is broadcast). Instead of a row None for a parameter (axes, a permutation),
        which is always taken whole; so are inputs behind the last row.
      outputs: the same for each output.
      combine: "sum", "max", ... how outputs without a label of the inputs combine from the parts';
        "" where they don't.
      adds_up: whether f(a + b) = f(a) + f(b), all inputs taken together and no others involved
        (Identity, Transpose, AddN, Sub): then partial inputs give partial outputs.
      shape_inputs: {input: output} for inputs that hold the shape of an output.
    """
    rows = [*inputs, *[None] * (len(view.inputs) - len(inputs))]
    if view.wanted is not None:
        chosen = _wanted(view.wanted, outputs[0])
    elif view.sharded:
        chosen = _chosen(view, rows)
    else:
        return _of_partial(view, rows, len(outputs)) if adds_up else StayWhole()
    if chosen is None:
        return ACROSS
    label, like = chosen
    made: list[State] = []
    for row in outputs:
        if label not in row and not combine:
            return ACROSS
        made.append(_state_along(label, row, like) if label in row else Partial(combine))
    shapes = {
        position: {state.axis: state}
        for position, output in (shape_inputs or {}).items()
        if isinstance(state := made[output], Sharded)
    }
    needed = tuple(_state_along(label, row or (), like) for row in rows)
    return Split(needed, tuple(made), shapes)


def _of_partial(view: OpView, rows: Sequence[Labels | None], num_outputs: int) -> Answer:
    """Partial inputs stay partial where that costs nothing; else they are combined first."""
    tensors = [i for i, row in enumerate(rows) if row is not None]
    if tensors and all(view.inputs[i].state == SUM for i in tensors):
        inputs = tuple(SUM if i in tensors else WHOLE for i in range(len(view.inputs)))
        return Split(inputs, (SUM,) * num_outputs)
    return StayWhole()


def _chosen(view: OpView, rows: Sequence[Labels | None]) -> tuple[str, Sharded] | None:
    """The factor along which most elements are sharded already, and how the batch lies in it.

    Inputs that are sharded along another factor are joined; so x * transpose(x) keeps one part.
    """
    elements: dict[tuple[str, Sharded], int] = defaultdict(int)
    for position in view.sharded:
        state, row = view.inputs[position].state, rows[position] or ()
        assert isinstance(state, Sharded)
        label = row[state.axis] if state.axis < len(row) else None
        if label is not None:
            count = math.prod(max(size, 1) for size in (view.inputs[position].shape or ()))
            elements[label, dataclasses.replace(state, axis=0)] += count
    return max(elements, key=elements.__getitem__, default=None)


def _wanted(state: Sharded, row: Labels) -> tuple[str, Sharded] | None:
    """The same of an output that is wanted in parts."""
    label = row[state.axis] if state.axis < len(row) else None
    return None if label is None else (label, dataclasses.replace(state, axis=0))


def _state_along(label: str, row: Labels, like: Sharded) -> State:
    """The state of a tensor with these labels when `label` is cut."""
    return dataclasses.replace(like, axis=list(row).index(label)) if label in row else WHOLE

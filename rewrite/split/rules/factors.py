"""Rules as data: which dimensions of an op's inputs and outputs run along together.

A factor is a label that dimensions share, as the letters of an einsum do. An op whose inputs are
sharded along one factor can work on the parts alone: an output with that factor is sharded along
it, an output without is partial, if the op reduces the factor in a way that can be done in parts.
(Shardy describes ops in the same way: https://openxla.org/shardy/sharding_propagation.)
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.op_view import OpView
from rewrite.split.states import SUM, WHOLE, Partial, Sharded, State

Labels = Sequence[str | None]


@dataclasses.dataclass(frozen=True)
class Factors:
    """How the dimensions of an op belong together.

    Attributes:
      inputs: for each data input a label for each dimension; None for a dimension that can't be
        cut (or that is broadcast). Instead of a row None for a parameter (axes, a permutation),
        which is always taken whole.
      outputs: the same for each output.
      combine: {label: "sum", "max", ...} how outputs without that label combine from the parts'.
      adds_up: whether f(a + b) = f(a) + f(b), all inputs taken together and no others involved
        (Identity, Transpose, AddN, Sub): then partial inputs give partial outputs.
      shape_inputs: {input: output} for inputs that hold the shape of an output.
      is_mean: see Split; only where a label is combined.
    """

    inputs: Sequence[Labels | None]
    outputs: Sequence[Labels]
    combine: Mapping[str, str] = dataclasses.field(default_factory=dict)
    adds_up: bool = False
    shape_inputs: Mapping[int, int] = dataclasses.field(default_factory=dict)
    is_mean: bool = False


def split_by_factors(view: OpView, factors: Factors) -> Answer:
    """The answer of a rule that is given as factors."""
    if not view.sharded:
        return _of_partial(view, factors)
    chosen = _chosen(view, factors)
    if chosen is None:
        return StayWhole("it works across the batch, along the axis that is cut")
    label, like = chosen
    inputs = tuple(_state_along(label, row or (), like) for row in factors.inputs)
    outputs = []
    for row in factors.outputs:
        if label in row:
            outputs.append(_state_along(label, row, like))
        elif label in factors.combine:
            outputs.append(Partial(factors.combine[label]))
        else:
            return StayWhole("it works across the batch, along the axis that is cut")
    shapes = {
        position: {state.axis: state}
        for position, output in factors.shape_inputs.items()
        if isinstance(state := outputs[output], Sharded)
    }
    is_mean = factors.is_mean and any(isinstance(state, Partial) for state in outputs)
    return Split(inputs, tuple(outputs), shapes, is_mean=is_mean)


def _of_partial(view: OpView, factors: Factors) -> Answer:
    """Partial inputs stay partial where that costs nothing; else they are combined first."""
    tensors = [i for i, row in enumerate(factors.inputs) if row is not None]
    if factors.adds_up and tensors and all(view.inputs[i].state == SUM for i in tensors):
        inputs = tuple(SUM if i in tensors else WHOLE for i in range(len(view.inputs)))
        return Split(inputs, (SUM,) * len(factors.outputs))
    return StayWhole()


def _chosen(view: OpView, factors: Factors) -> tuple[str, Sharded] | None:
    """The factor along which most elements are sharded already, and how the batch lies in it.

    Inputs that are sharded along another factor are joined; so x * transpose(x) keeps one part.
    """
    elements: dict[tuple[str, Sharded], int] = defaultdict(int)
    for position in view.sharded:
        state, row = view.inputs[position].state, factors.inputs[position] or ()
        assert isinstance(state, Sharded)
        label = row[state.axis] if state.axis < len(row) else None
        if label is not None:
            count = 1
            for size in view.inputs[position].shape or ():
                count *= max(size, 1)
            elements[label, dataclasses.replace(state, axis=0)] += count
    return max(elements, key=elements.__getitem__, default=None)


def _state_along(label: str, row: Labels, like: Sharded) -> State:
    """The state of a tensor with these labels when `label` is cut."""
    return dataclasses.replace(like, axis=list(row).index(label)) if label in row else WHOLE

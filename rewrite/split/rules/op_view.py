"""What a rule is shown of an op, and what it answers."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.protos import AttrValue, NodeDef
from rewrite.split.decision import Shape, attr_of
from rewrite.split.states import WHOLE, Partial, Sharded, State


@dataclasses.dataclass(frozen=True)
class InputView:
    """A data input of an op.

    Attributes:
      state: what the tensor is in the split step.
      shape: of the whole tensor at the batch size that the step is placed for; None or a
        negative dimension where TensorFlow can't say.
      dtype: name of its dtype.
      block: where it names rows, and each entry of the batch only rows of its own: how many each
        has; else 0.
      value: the whole tensor's value, where no run can change it; else None. Values that are
        derived from shapes are those at the batch size that the step is placed for.
    """

    state: State
    shape: Shape
    dtype: str
    value: np.ndarray | None = None
    block: int = 0


@dataclasses.dataclass(frozen=True)
class OpView:
    """An op of the unsplit step.

    Attributes:
      node: its NodeDef.
      batch: how many entries the batch has.
      inputs: its data inputs.
      output_shapes: of the whole outputs.
      output_dtypes: of its outputs.
    """

    node: NodeDef
    batch: int
    inputs: Sequence[InputView]
    output_shapes: Sequence[Shape]
    output_dtypes: Sequence[str]

    @property
    def states(self) -> tuple[State, ...]:
        """States of the inputs."""
        return tuple(each.state for each in self.inputs)

    @property
    def sharded(self) -> tuple[int, ...]:
        """Which inputs are sharded."""
        return tuple(i for i, each in enumerate(self.inputs) if isinstance(each.state, Sharded))

    @property
    def partial(self) -> tuple[int, ...]:
        """Which inputs are partial."""
        return tuple(i for i, each in enumerate(self.inputs) if isinstance(each.state, Partial))

    def attr(self, name: str) -> AttrValue:
        """An attribute's AttrValue; the op's default where the NodeDef leaves it out."""
        return attr_of(self.node, name)


def whole_inputs(view: OpView) -> tuple[State, ...]:
    """All inputs whole."""
    return (WHOLE,) * len(view.inputs)

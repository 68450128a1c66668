"""What a rule is shown of an op; where it asks for what only a run decides, the op stays whole."""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from graphs.building.op_outputs import attr_of
from graphs.protos import AttrValue, NodeDef, Shape
from rewrite.split.decision import StayWhole
from rewrite.split.states import WHOLE, Sharded, State

UNKNOWN_SHAPE = StayWhole("the shape of a tensor is not known before the run")
UNKNOWN_AXES = StayWhole("the axes that it works along are not known before the run")
Known = TypeVar("Known")


class StayWholeError(Exception):
    """An op can't be split, as a rule finds while it asks; `answer` says why."""

    def __init__(self, answer: StayWhole):
        super().__init__(answer.reason)
        self.answer = answer


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
      wanted: where nothing that it reads is cut: how its output 0 is to be made in parts.
    """

    node: NodeDef
    batch: int
    inputs: Sequence[InputView]
    output_shapes: Sequence[Shape]
    output_dtypes: Sequence[str]
    wanted: Sharded | None = None

    @property
    def states(self) -> tuple[State, ...]:
        """States of the inputs."""
        return tuple(each.state for each in self.inputs)

    @property
    def sharded(self) -> tuple[int, ...]:
        """Which inputs are sharded."""
        return tuple(i for i, each in enumerate(self.inputs) if isinstance(each.state, Sharded))

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """Of an input; StayWholeError where its rank is not known."""
        return _known(self.inputs[position].shape, UNKNOWN_SHAPE)

    def result(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an output; StayWholeError as of an input."""
        return _known(self.output_shapes[position], UNKNOWN_SHAPE)

    def value(self, position: int) -> np.ndarray:
        """What an input says of axes; StayWholeError where a run decides it."""
        return _known(self.inputs[position].value, UNKNOWN_AXES)

    def axes(self, position: int, rank: int) -> list[int]:
        """The axes that an input names, none of them negative; StayWholeError as of its value."""
        return [int(axis) % max(rank, 1) for axis in self.value(position).reshape(-1)]

    def attr(self, name: str) -> AttrValue:
        """An attribute's AttrValue; the op's default where the NodeDef leaves it out."""
        return attr_of(self.node, name)


def whole_inputs(view: OpView) -> tuple[State, ...]:
    """All inputs whole."""
    return (WHOLE,) * len(view.inputs)


def _known(found: Known | None, otherwise: StayWhole) -> Known:
    if found is None:
        raise StayWholeError(otherwise)
    return found

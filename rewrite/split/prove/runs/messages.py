"""What `compare_runs` asks of its child process and what that answers: values that are pickled."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from rewrite.split.cut_variable import CutVariable


@dataclasses.dataclass(frozen=True, eq=False)
class StepRun:
    """A step that is run.

    Attributes:
      graph_def: serialized.
      fetches: tensors "op:i" and ops.
      exact: {constant: the value that its own was rounded from}.
      pieces: {variable's op: how it is cut, the ops of its pieces} of those in pieces.
    """

    graph_def: bytes
    fetches: Sequence[str]
    exact: Mapping[str, float]
    pieces: Mapping[str, tuple[CutVariable, Sequence[str]]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, eq=False)
class TableStart:
    """What fills the tables of both steps before they run.

    Attributes:
      graph_def: serialized; its tables are called as in the steps.
      ops: to run.
      asset_feeds: {tensor: path} that is fed.
    """

    graph_def: bytes = b""
    ops: Sequence[str] = ()
    asset_feeds: Mapping[str, str] = dataclasses.field(default_factory=dict)


NO_TABLES = TableStart()


@dataclasses.dataclass(frozen=True, eq=False)
class CompareRequest:
    """What the child is to do."""

    given: StepRun  # the unsplit step
    split: StepRun  # the split one; its fetches are those of the other, in their order
    feeds: Mapping[str, np.ndarray]  # {tensor "op:i": array} of every step
    num_steps: int  # how often each is run
    tables: TableStart = NO_TABLES  # what fills the steps' tables


@dataclasses.dataclass(frozen=True)
class RunsCompared:
    """What came of comparing the runs.

    Attributes:
      compared: names of the values that agree.
      not_compared: "name: why" of those that can't be compared.
      differing: "name: how" of those that disagree.
      max_relative_difference: of what agrees, in the largest |value| of each.
      narrow_ops: {op type: how many} that were not run in float64.
      why_not: why nothing was compared; "" where something was.
      phase: what the child does at present, for the case that it ends there.
    """

    compared: Sequence[str] = ()
    not_compared: Sequence[str] = ()
    differing: Sequence[str] = ()
    max_relative_difference: float = 0.0
    narrow_ops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    why_not: str = ""
    phase: str = ""

"""The two interfaces that a search knows: a policy proposes and learns, an evaluator answers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from graphs.errors import TfplaceError
from graphs.op_graph import IntArray
from graphs.problem import Outcome, Placement


@dataclasses.dataclass(frozen=True)
class Trial:
    """One evaluated placement.

    Attributes:
      index: 0, 1, ... in the order of evaluation.
      seconds: since the search began.
      placement: what was evaluated.
      outcome: what it is worth.
    """

    index: int
    seconds: float
    placement: Placement
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class Proposal:
    """Placements to be evaluated; a learning policy proposes a subclass with what it learns from.

    Attributes:
      device_of_op: i4[B, N].
    """

    device_of_op: IntArray


@dataclasses.dataclass(frozen=True)
class Burst(Proposal):
    """What a policy proposes that simulates for itself: its new best, or nothing.

    Attributes:
      num_simulated: placements that it simulated on the way; they count as trials.
    """

    num_simulated: int


class DivergedError(TfplaceError):
    """A policy's numbers are no numbers any more: it has nothing to propose."""

    exit_status = 2


class Policy(Protocol):
    """Proposes placements and learns from what they are worth.

    Both methods may raise DivergedError, which ends the policy's stage of a search.
    """

    def propose(self) -> Proposal | None:
        """Returns the next placements to evaluate, or None when there is nothing left to try."""
        ...

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Takes the outcomes [B] of a proposal; returns scalars worth logging."""
        ...


@runtime_checkable
class PacedPolicy(Policy, Protocol):
    """A policy that plans ahead for what is left of its stage."""

    def allow(self, seconds_left: float, trials_left: int | None) -> None:
        """Called before each `propose`, with what a search still has for this policy."""
        ...


@runtime_checkable
class ResumablePolicy(Policy, Protocol):
    """A policy whose state can be kept between `learn` and `propose`."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything that its next proposals depend on, as named arrays."""
        ...

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; raises ValueError if that was another problem's."""
        ...


class Evaluator(Protocol):
    """Says what placements are worth."""

    def evaluate(self, device_of_op: IntArray) -> Sequence[Outcome]:
        """Outcomes [B] of placements i4[B, N]; an infeasible one is a value, never an exception."""
        ...

"""A policy that says what it has to say at once."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Proposal


class OneShot(abc.ABC):
    """Proposes once, then nothing; it learns nothing."""

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        """Keeps what `place` needs.

        Args:
          problem: what is to be placed.
          seed: of the placer's random choices, where it has any.
        """
        self.problem = problem
        self.seed = seed
        self._proposed = False

    @abc.abstractmethod
    def place(self) -> IntArray:
        """i4[B, N]: all placements that this placer proposes."""

    def propose(self) -> Proposal | None:
        """The placements the first time, then None."""
        if self._proposed:
            return None
        self._proposed = True
        return Proposal(self.place())

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> Snapshot:
        """Whether it has said what it has to say."""
        return {"proposed": np.array(self._proposed)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes what `state` took."""
        self._proposed = bool(state["proposed"])

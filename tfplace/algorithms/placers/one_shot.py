"""A policy that proposes all that it has to propose at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Outcome
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Proposal

# Makes placements i4[B, N], when they are asked for.
Start = Callable[[], IntArray]


class OneShot:
    """Proposes placements once, feasible or not, then nothing; it learns nothing."""

    def __init__(self, place: Start) -> None:
        """Keeps what makes the placements, which runs when they are proposed."""
        self._place = place
        self._proposed = False

    def propose(self) -> Proposal | None:
        """The placements the first time, then None."""
        if self._proposed:
            return None
        self._proposed = True
        return Proposal(self._place())

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> Snapshot:
        """Whether it has proposed."""
        return {"proposed": np.array(self._proposed)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state` was taken."""
        self._proposed = bool(state["proposed"])

"""A placement that somebody else made: the given one, or an expert's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Outcome
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Proposal


class Fixed:
    """Proposes one placement as it is, feasible or not; then nothing."""

    def __init__(self, device_of_op: IntArray) -> None:
        """Takes the placement, i4[N]."""
        self._placement: IntArray | None = np.array(device_of_op, dtype=np.int32)

    def propose(self) -> Proposal | None:
        """The placement the first time, then None."""
        placement, self._placement = self._placement, None
        return None if placement is None else Proposal(placement[None])

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> Snapshot:
        """Whether it has said what it has to say."""
        return {"proposed": np.array(self._placement is None)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes what `state` took."""
        if state["proposed"]:
            self._placement = None

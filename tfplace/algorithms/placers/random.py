"""A random device for each group: what any search has to beat at an equal number of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import group_allowed
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal


class Random:
    """Draws each group's device uniformly from those it may use; never ends by itself."""

    def __init__(
        self, problem: Problem, seed: int = 0, num_groups: int = 64, batch_size: int = 16
    ) -> None:
        """Groups the ops.

        Args:
          problem: what is to be placed.
          seed: of the draws.
          num_groups: at most; groups are minimum cuts (tfplace.grouping.coarsen).
          batch_size: placements per proposal.
        """
        self._grouping = coarsen(problem, min(num_groups, max(problem.num_ops, 1)), seed)
        allowed = group_allowed(problem.allowed(), self._grouping)
        self._weights = allowed / np.maximum(allowed.sum(axis=1, keepdims=True), 1)
        self._rng = np.random.default_rng(seed)
        self._batch_size = batch_size

    def propose(self) -> Proposal:
        """The next `batch_size` placements."""
        limits = np.cumsum(self._weights, axis=1)
        draws = self._rng.random((self._batch_size, len(limits), 1))
        # The last limit may round to just below 1; no draw may fall beyond the last device.
        device_of_group = np.argmax(draws < limits, axis=2)
        last = limits.shape[1] - 1 - np.argmax(self._weights[:, ::-1] > 0, axis=1)
        device_of_group = np.where(draws[:, :, 0] < limits[:, -1], device_of_group, last)
        device_of_op: IntArray = device_of_group[:, self._grouping.group_of_op].astype(np.int32)
        return Proposal(device_of_op)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> snapshot.Snapshot:
        """The random generator's."""
        return {"rng": snapshot.of_generator(self._rng)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes what `state` took."""
        snapshot.into_generator(self._rng, state["rng"])

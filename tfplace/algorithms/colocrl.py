"""ColocRL: an attention sequence-to-sequence policy, learned by REINFORCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.grouped_search import GroupedSearch, UpdateRule
from tfplace.config import ColocRLConfig
from tfplace.learning.batch import GroupedProposal
from tfplace.learning.policy_gradient import policy_gradient_loss
from tfplace.learning.snapshot import Snapshot
from tfplace.policies.seq2seq import chosen_log_probs
from tfplace.trial import Proposal


class ColocRL:
    """REINFORCE with a moving-average baseline (Mirhoseini et al., ICML 2017).

    The baseline starts at the failing signal, so that at first every placement that runs is
    encouraged; after the warm-up only placements that run teach. Departures: one process
    instead of many asynchronous ones, a smaller network, at most 256 groups, advantages over
    their median size in a batch. Rewards as in `tfplace.reward`.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: ColocRLConfig | None = None
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        config = config or ColocRLConfig()
        rule = UpdateRule(
            _loss,
            steps=1,
            first_baseline=config.first_baseline,
            valid_only_from=config.warm_up_trials,
        )
        self._search = GroupedSearch(problem, seed, config, rule)

    def propose(self) -> GroupedProposal | None:
        """A batch of samples; one placement and then None where nothing can be chosen."""
        return self._search.propose()

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """One policy gradient step; returns mean reward, loss and entropy."""
        return self._search.learn(proposal, outcomes)

    def state(self) -> Snapshot:
        """All that the search goes on from."""
        return self._search.state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        self._search.set_state(state)


def _loss(new: Any, old: Any, devices: Any, advantage: Any) -> Any:
    return policy_gradient_loss(chosen_log_probs(new, devices), advantage)

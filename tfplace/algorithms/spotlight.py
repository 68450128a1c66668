"""Spotlight: placement as a decision process with a stage per group, learned by PPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.grouped_search import GroupedSearch, UpdateRule
from tfplace.config import SpotlightConfig
from tfplace.learning import proximal
from tfplace.learning.batch import GroupedProposal
from tfplace.learning.snapshot import Snapshot
from tfplace.policies.seq2seq import chosen_log_probs
from tfplace.trial import Proposal


class Spotlight:
    """Proximal policy optimisation of a sequence-to-sequence policy (Gao et al., ICML 2018).

    Departures, where PUBLISHED.md says nothing: the groups (minimum cuts), the size of the
    network, Adam and its rate, the batch of ten, the moving-average baseline, advantages over
    their median size in a batch. Rewards as in `tfplace.reward`.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: SpotlightConfig | None = None
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        config = config or SpotlightConfig()
        self._kl_weight = config.kl_weight
        rule = UpdateRule(self._loss, config.ascent_steps)
        self._search = GroupedSearch(problem, seed, config, rule)

    def propose(self) -> GroupedProposal | None:
        """A batch of samples; one placement and then None where nothing can be chosen."""
        return self._search.propose()

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Ten ascent steps on the batch; returns mean reward, loss and entropy."""
        return self._search.learn(proposal, outcomes)

    def state(self) -> Snapshot:
        """All that the search goes on from."""
        return self._search.state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        self._search.set_state(state)

    def _loss(self, new: Any, old: Any, devices: Any, advantage: Any) -> Any:
        ratio = proximal.probability_ratio(
            chosen_log_probs(new, devices), chosen_log_probs(old, devices)
        )
        divergence = proximal.kl_divergence(old, new)
        return proximal.penalised_loss(ratio, advantage, divergence, self._kl_weight)

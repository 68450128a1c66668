"""ColocRL: an attention sequence-to-sequence policy, learned by REINFORCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned.config import ColocRLConfig
from tfplace.algorithms.learned.group_placer import GroupPlacer
from tfplace.algorithms.learned.learning.appraisal import Appraisal
from tfplace.algorithms.learned.learning.policy_gradient import policy_gradient_loss
from tfplace.algorithms.learned.learning.proposal import GroupedProposal
from tfplace.algorithms.learned.policies.seq2seq import chosen_log_probs, log_prior
from tfplace.algorithms.learned.reward import feasible
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Proposal


class ColocRL:
    """REINFORCE with a moving-average baseline (Mirhoseini et al., ICML 2017).

    An encoder reads one colocation group at a time, a decoder with attention emits one device
    per group: π(P | G; θ). The objective is J(θ) = E_{P∼π(P|G;θ)}[R(P | G)], R = −√t, and
    ∇J ≈ (1/K) Σ_i (R(P_i) − B) ∇ log π(P_i | G; θ). The baseline B starts at the failing signal,
    so that at first every placement that runs is encouraged; after the warm-up only placements
    that run teach.

    Departures: one process instead of many asynchronous ones, a smaller network, at most
    `max_groups` groups, advantages over their median size in a batch. Rewards as in
    `tfplace.algorithms.learned.reward`, numbers as in ColocRLConfig.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: ColocRLConfig | None = None
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        self.config = config or ColocRLConfig()
        grouped = grouped_problem(problem, self.config.grouping, seed)
        configs = self.config.policy, self.config.optimizer
        self._placer = GroupPlacer(grouped, log_prior(grouped.allowed), configs, _loss, seed)
        self._appraisal = Appraisal(problem, self.config.baseline_decay, self.config.first_baseline)
        self._num_trials = 0

    def propose(self) -> GroupedProposal | None:
        """K samples of π; one placement and then None where nothing can be chosen."""
        has_choice = self._placer.grouped.has_choice
        if self._num_trials > 0 and not has_choice:
            return None
        return self._placer.sample(self.config.batch_size if has_choice else 1)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """One policy gradient step; returns mean reward, loss and entropy."""
        assert isinstance(proposal, GroupedProposal)
        rewards = self._appraisal.rewards(outcomes)
        is_warm_up = self._num_trials < self.config.warm_up_trials
        teaches = feasible(outcomes) | is_warm_up
        self._num_trials += len(outcomes)
        scalars = {"mean_reward": float(rewards.mean())}
        if not self._placer.grouped.has_choice or not teaches.any():
            return scalars
        advantages = self._appraisal.advantages(rewards, teaches)
        return {**scalars, **self._placer.learn(proposal, advantages)}

    def state(self) -> Snapshot:
        """Weights, optimizer, random generator, baseline and trial count."""
        return {
            **self._placer.state(),
            "baseline": self._appraisal.state,
            "num_trials": np.array(self._num_trials),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        self._placer.set_state(state)
        self._appraisal.state = state["baseline"]
        self._num_trials = int(state["num_trials"])


def _loss(new: Any, old: Any, devices: Any, advantage: Any) -> Any:
    return policy_gradient_loss(chosen_log_probs(new, devices), advantage)

"""ColocRL: an attention sequence-to-sequence policy, learned by REINFORCE."""

from collections.abc import Mapping, Sequence

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned.config import ColocRLConfig
from tfplace.algorithms.learned.group_placer import GroupPlacer
from tfplace.algorithms.learned.learning.appraisal import Appraisal
from tfplace.algorithms.learned.policies.distributions import log_prior
from tfplace.algorithms.learned.reward import feasible
from tfplace.algorithms.learned.sequence_learner import reinforce_loss
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.search.trial import Proposal


class ColocRL(GroupPlacer):
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
        appraisal = Appraisal(problem, self.config.baseline_decay, self.config.first_baseline)
        prior = log_prior(grouped.allowed)
        super().__init__(grouped, prior, self.config, appraisal, reinforce_loss, seed)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """One policy gradient step; returns mean reward, loss and entropy."""
        is_warm_up = self.num_trials < self.config.warm_up_trials
        return self.improve(proposal, outcomes, teaches=feasible(outcomes) | is_warm_up)

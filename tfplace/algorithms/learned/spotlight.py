"""Spotlight: placement as a decision process with a stage per group, learned by PPO."""

import functools
from collections.abc import Mapping, Sequence

from graphs.op_graph import IntArray
from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.learned.config import SpotlightConfig
from tfplace.algorithms.learned.group_placer import GroupPlacer
from tfplace.algorithms.learned.learning.appraisal import Appraisal
from tfplace.algorithms.learned.learning.policy_gradient import close_to
from tfplace.algorithms.learned.policies.distributions import log_prior
from tfplace.algorithms.learned.sequence_learner import proximal_loss
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.search.trial import Proposal


class Spotlight(GroupPlacer):
    """Proximal policy optimisation of a sequence-to-sequence policy (Gao et al., ICML 2018).

    Placement is a Markov decision process with one stage per group: the state s_g is the group
    and the devices of the groups before it, the action d_g its device. A two-layer recurrent
    policy, uniform at first, is improved from each batch by ten ascent steps on
    E[ π_θ(d|s) / π_old(d|s) · A − β · KL(π_old(·|s) ‖ π_θ(·|s)) ].

    Departures, where tfplace/docs/published.md says nothing: the groups (minimum cuts), the size of
    the network, Adam and its rate, the batch of ten, the moving-average baseline, advantages over
    their median size in a batch. Rewards as in `tfplace.algorithms.learned.reward`. With `start`,
    which no paper has, the search goes on from a placement (see `__init__`).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        config: SpotlightConfig | None = None,
        start: IntArray | None = None,
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Args:
          problem: what is to be placed.
          seed: of groups, weights and samples.
          config: numbers.
          start: a legal placement i4[N] to go on from, or None for Spotlight as published. Then
            groups don't cross its borders, and the untrained policy is not uniform but
            (1 − ε)·1[d = start] + ε/D, with config.start_epsilon; the baseline is that of the
            first batch, which lies around it.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        self.config = config or SpotlightConfig()
        grouped = grouped_problem(problem, self.config.grouping, seed, start)
        frequencies = None
        if start is not None:
            devices = grouped.device_of_group(start)
            frequencies = close_to(devices, self.config.start_epsilon, grouped.allowed)
        prior = log_prior(grouped.allowed, frequencies)
        appraisal = Appraisal(problem, self.config.baseline_decay)
        loss = functools.partial(proximal_loss, beta=self.config.kl_weight)
        super().__init__(grouped, prior, self.config, appraisal, loss, seed)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Ten ascent steps on the batch; returns mean reward, loss and entropy."""
        return self.improve(proposal, outcomes, steps=self.config.ascent_steps)

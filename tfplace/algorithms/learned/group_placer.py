"""ColocRL and Spotlight: a sequence-to-sequence policy over the groups of a problem."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.op_graph import IntArray
from graphs.problem import Outcome, Problem
from tfplace.algorithms.learned.config import ColocRLConfig, SpotlightConfig
from tfplace.algorithms.learned.features import group_features, op_table
from tfplace.algorithms.learned.learning.appraisal import Appraisal, feasible
from tfplace.algorithms.learned.learning.policy_gradient import close_to
from tfplace.algorithms.learned.policies import seq2seq
from tfplace.algorithms.learned.policies.distributions import (
    GroupedProposal,
    ProbabilityArray,
    gumbel_noise,
    log_prior,
)
from tfplace.algorithms.learned.sequence_learner import (
    Loss,
    SequenceLearner,
    proximal_loss,
    reinforce_loss,
)
from tfplace.grouping.grouped_problem import GroupedProblem, grouped_problem
from tfplace.grouping.quotient import BoolArray
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal


class GroupPlacer:
    """Batches of placements from one policy; a subclass says how it learns from them.

    Attributes:
      grouped: the groups.
      num_trials: placements learned from so far.
    """

    def __init__(
        self,
        grouped: GroupedProblem,
        log_prior: ProbabilityArray,
        config: ColocRLConfig | SpotlightConfig,
        appraisal: Appraisal,
        loss: Loss,
        seed: int,
    ) -> None:
        """Makes an untrained policy; f4[G, D] `log_prior` is added to its logits."""
        self.grouped = grouped
        self.num_trials = 0
        self._batch_size = config.batch_size if grouped.has_choice else 1
        self._appraisal = appraisal
        problem = grouped.problem
        features = group_features(problem.graph, op_table(problem), grouped.grouping)
        self._sequence = seq2seq.Sequence(tf.constant(features), tf.constant(log_prior))
        shape = (features.shape[1], problem.num_devices)
        self._learner = SequenceLearner(shape, (config.policy, config.optimizer), loss, seed)
        self._rng = np.random.default_rng(seed)

    def propose(self) -> GroupedProposal | None:
        """A batch of samples; one placement and then None where nothing can be chosen."""
        if self.num_trials > 0 and not self.grouped.has_choice:
            return None
        groups, devices = self.grouped.allowed.shape
        noise = gumbel_noise(self._rng, (groups, self._batch_size, devices))
        chosen, logs = self._learner.sample(self._sequence, noise)
        return GroupedProposal(self.grouped.device_of_op(chosen), chosen, logs)

    def improve(
        self,
        proposal: Proposal,
        outcomes: Sequence[Outcome],
        teaches: BoolArray | None = None,
        steps: int = 1,
    ) -> Mapping[str, float]:
        """Optimizer steps on one batch; returns mean reward, loss, entropy and KL.

        Args:
          outcomes: [B].
          teaches: bool[B] outcomes to learn from; None for all.
          steps: 1 or more.
        """
        assert isinstance(proposal, GroupedProposal)
        rewards = self._appraisal.rewards(outcomes)
        self.num_trials += len(outcomes)
        scalars = {"mean_reward": float(rewards.mean())}
        if not self.grouped.has_choice or (teaches is not None and not teaches.any()):
            return scalars
        advantages = self._appraisal.advantages(rewards, teaches)
        return {**scalars, **self._learner.learn(self._sequence, proposal, advantages, steps)}

    def state(self) -> snapshot.Snapshot:
        """Weights, optimizer, random generator, baseline and trial count."""
        return {
            **self._learner.state(),
            "rng": snapshot.of_generator(self._rng),
            "baseline": self._appraisal.state,
            "num_trials": np.array(self.num_trials),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        self._learner.set_state(state)
        snapshot.into_generator(self._rng, state["rng"])
        self._appraisal.state = state["baseline"]
        self.num_trials = int(state["num_trials"])


class ColocRL(GroupPlacer):
    """REINFORCE with a moving-average baseline (Mirhoseini et al., ICML 2017).

    An encoder reads one colocation group at a time, a decoder with attention emits one device
    per group: π(P | G; θ). The objective is J(θ) = E_{P∼π(P|G;θ)}[R(P | G)], R = −√t, and
    ∇J ≈ (1/K) Σ_i (R(P_i) − B) ∇ log π(P_i | G; θ). The baseline B starts at the failing signal,
    so that at first every placement that runs is encouraged; after the warm-up only placements
    that run teach.

    Departures: one process instead of many asynchronous ones, a smaller network, at most
    `max_groups` groups, advantages over their median size in a batch. Rewards as in
    `appraisal.reward`, numbers as in ColocRLConfig.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: ColocRLConfig | None = None
    ) -> None:
        """Groups the problem, with an untrained policy; ConstraintError: an op may lie nowhere."""
        self.config = config or ColocRLConfig()
        grouped = grouped_problem(problem, self.config.grouping, seed)
        appraisal = Appraisal(problem, self.config.baseline_decay, self.config.first_baseline)
        prior = log_prior(grouped.allowed)
        super().__init__(grouped, prior, self.config, appraisal, reinforce_loss, seed)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """One policy gradient step; returns mean reward, loss and entropy."""
        is_warm_up = self.num_trials < self.config.warm_up_trials
        return self.improve(proposal, outcomes, teaches=feasible(outcomes) | is_warm_up)


class Spotlight(GroupPlacer):
    """Proximal policy optimisation of a sequence-to-sequence policy (Gao et al., ICML 2018).

    Placement is a Markov decision process with one stage per group: the state s_g is the group
    and the devices of the groups before it, the action d_g its device. A two-layer recurrent
    policy, uniform at first, is improved from each batch by ten ascent steps on
    E[ π_θ(d|s) / π_old(d|s) · A − β · KL(π_old(·|s) ‖ π_θ(·|s)) ].

    Departures, where tfplace/docs/published.md says nothing: the groups (minimum cuts), the size of
    the network, Adam and its rate, the batch of ten, the moving-average baseline, advantages over
    their median size in a batch. Rewards as in `appraisal.reward`. With `start`,
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
          seed: of groups, weights and samples.
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

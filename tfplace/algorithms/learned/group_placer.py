"""What ColocRL and Spotlight share: a sequence-to-sequence policy over the groups of a problem."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.placement import Outcome
from tfplace.algorithms.learned.config import ColocRLConfig, SpotlightConfig
from tfplace.algorithms.learned.features import group_features, op_table
from tfplace.algorithms.learned.learning.appraisal import Appraisal
from tfplace.algorithms.learned.policies import seq2seq
from tfplace.algorithms.learned.policies.distributions import (
    GroupedProposal,
    ProbabilityArray,
    gumbel_noise,
)
from tfplace.algorithms.learned.sequence_learner import Loss, SequenceLearner
from tfplace.grouping.grouped_problem import GroupedProblem
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
        """Makes an untrained policy.

        Args:
          grouped: what is to be placed.
          log_prior: f4[G, D] added to the logits; see distributions.log_prior.
          config: of policy, optimizer and batches.
          appraisal: of the search's rewards.
          loss: what learning descends.
          seed: of weights and samples.
        """
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
          proposal: of `propose`.
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

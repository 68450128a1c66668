"""A search over the devices of fixed groups with a sequence-to-sequence policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace.algorithms.sequence_learner import Loss, SequenceLearner
from tfplace.config import ColocRLConfig, SpotlightConfig
from tfplace.features import group_features, op_table
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.learning import snapshot
from tfplace.learning.appraisal import Appraisal
from tfplace.learning.batch import GroupedProposal, grouped_batch
from tfplace.policies import seq2seq
from tfplace.reward import feasible
from tfplace.trial import Proposal


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """What tells one algorithm's update from another's.

    Attributes:
      loss: of an optimizer step.
      steps: per batch.
      first_baseline: None for the first batch's own mean.
      valid_only_from: trials after which only placements that run teach; None for never.
    """

    loss: Loss
    steps: int
    first_baseline: float | None = None
    valid_only_from: int | None = None


class GroupedSearch:
    """Samples batches of placements, appraises them, and updates the policy by a rule."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        config: ColocRLConfig | SpotlightConfig,
        rule: UpdateRule,
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        self.grouped = grouped_problem(problem, config.grouping, seed)
        self._batch_size = config.batch_size
        self._rule = rule
        features = group_features(problem.graph, op_table(problem), self.grouped.grouping).values
        self._sequence = seq2seq.Sequence(
            tf.constant(features), tf.constant(seq2seq.log_prior(self.grouped.allowed))
        )
        shape = (features.shape[1], problem.num_devices)
        self._learner = SequenceLearner(shape, config.policy, config.optimizer, rule.loss, seed)
        self._rng = np.random.default_rng(seed)
        self._appraisal = Appraisal(problem, config.baseline_decay, rule.first_baseline)
        self._num_trials = 0

    def propose(self) -> GroupedProposal | None:
        """A batch of samples; one placement and then None where nothing can be chosen."""
        size = self._batch_size if self.grouped.has_choice else 1
        if self._num_trials > 0 and not self.grouped.has_choice:
            return None
        shape = (self.grouped.grouping.num_groups, size, self.grouped.problem.num_devices)
        noise = seq2seq.gumbel_noise(self._rng, shape)
        devices, logs = self._learner.sample(self._sequence, noise)
        return GroupedProposal(self.grouped.device_of_op(devices), devices, logs)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Updates the policy from a proposal of its own; returns mean reward, loss and entropy."""
        assert isinstance(proposal, GroupedProposal)
        rule = self._rule
        rewards = self._appraisal.rewards(outcomes)
        valid_only = rule.valid_only_from is not None and self._num_trials >= rule.valid_only_from
        teaches = feasible(outcomes) | (not valid_only)
        self._num_trials += len(outcomes)
        scalars = {"mean_reward": float(rewards.mean())}
        if not self.grouped.has_choice or not teaches.any():
            return scalars
        # What does not teach keeps its place with no weight: the batch keeps its compiled shape.
        advantages = np.zeros(len(rewards))
        advantages[teaches] = self._appraisal.advantages(rewards[teaches])
        batch = grouped_batch(self.grouped.grouping, proposal, rewards, advantages)
        return {**scalars, **self._learner.learn(self._sequence, batch, rule.steps)}

    def state(self) -> snapshot.Snapshot:
        """Weights, optimizer, random generator, baseline and trial count."""
        return {
            **self._learner.state(),
            "rng": snapshot.of_generator(self._rng),
            "baseline": self._appraisal.state,
            "num_trials": np.array(self._num_trials),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken, on the same problem and configuration.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        self._learner.set_state(state)
        snapshot.into_generator(self._rng, state["rng"])
        self._appraisal.state = state["baseline"]
        self._num_trials = int(state["num_trials"])

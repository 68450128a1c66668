"""A sequence-to-sequence policy over the fixed groups of one problem."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray
from tfplace.algorithms.learned.config import AdamConfig, Seq2SeqConfig
from tfplace.algorithms.learned.features import group_features, op_table
from tfplace.algorithms.learned.learning.proposal import GroupedProposal, ProbabilityArray
from tfplace.algorithms.learned.policies import seq2seq
from tfplace.algorithms.learned.sequence_learner import Loss, SequenceLearner
from tfplace.grouping.grouped_problem import GroupedProblem
from tfplace.search.kept import snapshot


class GroupPlacer:
    """What ColocRL and Spotlight share: what the policy reads of the groups, and sampling.

    Attributes:
      grouped: the groups.
    """

    def __init__(
        self,
        grouped: GroupedProblem,
        log_prior: ProbabilityArray,
        configs: tuple[Seq2SeqConfig, AdamConfig],
        loss: Loss,
        seed: int,
    ) -> None:
        """Makes an untrained policy.

        Args:
          grouped: what is to be placed.
          log_prior: f4[G, D] added to the logits; see seq2seq.log_prior.
          configs: of policy and optimizer.
          loss: of what `learn` descends.
          seed: of weights and samples.
        """
        self.grouped = grouped
        problem = grouped.problem
        features = group_features(problem.graph, op_table(problem), grouped.grouping).values
        self._sequence = seq2seq.Sequence(tf.constant(features), tf.constant(log_prior))
        shape = (features.shape[1], problem.num_devices)
        self._learner = SequenceLearner(shape, *configs, loss, seed)
        self._rng = np.random.default_rng(seed)

    def sample(self, size: int) -> GroupedProposal:
        """Placements drawn from the policy."""
        shape = (self.grouped.grouping.num_groups, size, self.grouped.problem.num_devices)
        noise = seq2seq.gumbel_noise(self._rng, shape)
        devices, logs = self._learner.sample(self._sequence, noise)
        return GroupedProposal(self.grouped.device_of_op(devices), devices, logs)

    def learn(
        self, proposal: GroupedProposal, advantages: FloatArray, steps: int = 1
    ) -> dict[str, float]:
        """Optimizer steps on what was sampled, with its advantages f8[B]; loss and entropy."""
        return self._learner.learn(self._sequence, proposal, advantages, steps)

    def state(self) -> snapshot.Snapshot:
        """Weights, optimizer and random generator."""
        return {**self._learner.state(), "rng": snapshot.of_generator(self._rng)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken, on the same problem and configuration.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        self._learner.set_state(state)
        snapshot.into_generator(self._rng, state["rng"])

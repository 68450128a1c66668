"""Spotlight: placement as a decision process with a stage per group, learned by PPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.placement import Outcome
from graphs.problem import Problem
from tfplace import reward
from tfplace.config import SpotlightConfig
from tfplace.features import group_features
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.learning import baseline, proximal, snapshot
from tfplace.learning.batch import Batch, GroupedProposal, grouped_batch
from tfplace.learning.policy_gradient import mean_entropy
from tfplace.policies import seq2seq
from tfplace.trial import Proposal


class Spotlight:
    """Proximal policy optimisation of a sequence-to-sequence policy (Gao et al., ICML 2018).

    Departures, where the paper is silent or PUBLISHED.md holds no more: the groups (minimum cut),
    the size of the network, Adam and its rate, the batch of ten, the moving-average baseline and
    advantages scaled to a batch's root mean square; rewards as in `tfplace.reward`.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: SpotlightConfig | None = None
    ) -> None:
        """Groups the problem and makes an untrained policy.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        self.config = config or SpotlightConfig()
        self.grouped = grouped_problem(problem, self.config.grouping, seed)
        features = group_features(problem, self.grouped.grouping).values
        self._sequence = seq2seq.Sequence(
            tf.constant(features), tf.constant(seq2seq.log_prior(self.grouped.allowed))
        )
        self._policy = seq2seq.Seq2Seq(
            features.shape[1], problem.num_devices, self.config.policy, seed
        )
        self._optimizer = tf_keras.optimizers.Adam(
            self.config.learning_rate, global_clipnorm=self.config.gradient_clip
        )
        self._optimizer.build(self._policy.trainable_variables)
        self._rng = np.random.default_rng(seed)
        self._baseline = baseline.MovingAverage(decay=self.config.baseline_decay)
        self._reference = reward.reference_seconds(problem)
        self._done = False
        compiled = self.config.policy.compiled
        self._sample = tf.function(self._policy.sample, jit_compile=compiled)
        self._ascend = tf.function(self._ascent_step, jit_compile=compiled)

    def propose(self) -> GroupedProposal | None:
        """A batch of samples; one placement and then None where nothing can be chosen."""
        if self._done:
            return None
        self._done = not self.grouped.has_choice
        size = 1 if self._done else self.config.batch_size
        shape = (self.grouped.grouping.num_groups, size, self.grouped.problem.num_devices)
        noise = tf.constant(seq2seq.gumbel_noise(self._rng, shape))
        devices, logs = (part.numpy() for part in self._sample(self._sequence, noise))
        return GroupedProposal(self.grouped.device_of_op(devices), devices, logs)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Ten ascent steps on the batch; returns mean reward, loss, divergence and entropy."""
        assert isinstance(proposal, GroupedProposal)
        rewards = reward.rewards(outcomes, self._reference, self.grouped.problem.usable_bytes())
        scalars = {"mean_reward": float(rewards.mean())}
        if self._done:
            return scalars
        # The first batch is its own baseline.
        before = self._baseline if self._baseline.value is not None else None
        self._baseline = self._baseline.updated(rewards)
        value = (before or self._baseline).value
        assert value is not None
        advantages = baseline.normalised(baseline.advantages(rewards, value))
        batch = grouped_batch(self.grouped.grouping, proposal, rewards, advantages)
        return {**scalars, **self._update(batch)}

    def state(self) -> snapshot.Snapshot:
        """Weights, optimizer, random generator and baseline."""
        value = self._baseline.value
        return {
            **snapshot.of_variables("policy", self._policy.variables),
            **snapshot.of_variables("optimizer", self._optimizer.variables),
            "rng": snapshot.of_generator(self._rng),
            "baseline": np.array(np.nan if value is None else value),
            "done": np.array(self._done),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken, on the same problem and configuration.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        snapshot.into_variables("policy", self._policy.variables, state)
        snapshot.into_variables("optimizer", self._optimizer.variables, state)
        snapshot.into_generator(self._rng, state["rng"])
        value = float(state["baseline"])
        self._baseline = baseline.MovingAverage(
            None if np.isnan(value) else value, self.config.baseline_decay
        )
        self._done = bool(state["done"])

    def _update(self, batch: Batch) -> dict[str, float]:
        devices = tf.constant(batch.devices)
        advantage = tf.constant(batch.advantages, tf.float32)
        old = tf.constant(batch.log_distributions)
        scalars: Mapping[str, Any] = {}
        for _ in range(self.config.ascent_steps):
            scalars = self._ascend(self._sequence, devices, old, advantage)
        return {name: float(value) for name, value in scalars.items()}

    def _ascent_step(
        self, sequence: seq2seq.Sequence, devices: Any, old: Any, advantage: Any
    ) -> dict[str, Any]:
        """One step up the penalised surrogate, against old log π f4[B, G, D]."""
        with tf.GradientTape() as tape:
            new = self._policy.log_distributions(sequence, devices)
            ratio = proximal.probability_ratio(
                seq2seq.chosen_log_probs(new, devices), seq2seq.chosen_log_probs(old, devices)
            )
            divergence = proximal.kl_divergence(old, new)
            loss = proximal.penalised_loss(ratio, advantage, divergence, self.config.kl_weight)
        variables = self._policy.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {
            "loss": loss,
            "divergence": tf.reduce_mean(divergence),
            "entropy": mean_entropy(new),
        }

"""Post: independent softmaxes, learned by cross-entropy minimisation and proximal steps."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Outcome, Problem
from graphs.protos import Tensor
from tfplace.algorithms.learned.config import PostConfig
from tfplace.algorithms.learned.learning import policy_gradient
from tfplace.algorithms.learned.learning.appraisal import Appraisal
from tfplace.algorithms.learned.policies.distributions import (
    GroupedProposal,
    ProbabilityArray,
    log_prior,
)
from tfplace.algorithms.learned.sequence_learner import proximal_loss
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal


class Post:
    """Learns from every K placements by proximal steps, from every N by a closed-form fit.

    Source: Gao, Chen, Li, NeurIPS 2018. f(d) = Π_g softmax(θ_g) has no network. Proximal steps
    climb E[ f/f_old · A − β · KL(f_old ‖ f) ]; cross-entropy minimisation sets f to the device
    frequencies among the elite, the best tenth of the last N placements, and then
    f ← (1 − ε) f + ε/D.

    Departures, where tfplace/docs/published.md says nothing: the groups (minimum cuts), the penalty
    form of the proximal objective, the moving-average baseline, advantages over their median size
    in a batch, a linear fall of ε. With `start`, which no paper has, the search goes on from a
    placement (see `__init__`).
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        config: PostConfig | None = None,
        start: IntArray | None = None,
    ) -> None:
        """Groups the problem; the policy starts uniform.

        Args:
          seed: of groups and samples.
          start: a legal placement i4[N] to go on from, or None for Post as published. Then groups
            don't cross its borders, and f starts as if it were the elite of an earlier period,
            with config.start_epsilon; the baseline is that of the first batch.

        Raises:
          ConstraintError: an op may lie on no device.
          ValueError: the elite period is no multiple of the batch size.
        """
        self.config = config or PostConfig()
        if self.config.elite_period % self.config.batch_size:
            raise ValueError(
                f"configuring Post: elite_period {self.config.elite_period} is no multiple of "
                f"batch_size {self.config.batch_size}; make it one"
            )
        self.grouped = grouped_problem(problem, self.config.grouping, seed, start)
        self._policy = Categorical(log_prior(self.grouped.allowed))
        if start is not None:
            devices, epsilon = self.grouped.device_of_group(start), self.config.start_epsilon
            self._policy.assign(policy_gradient.close_to(devices, epsilon, self.grouped.allowed))
        self._rng = np.random.default_rng(seed)
        self._appraisal = Appraisal(problem, self.config.baseline_decay)
        self._num_trials = 0
        self._recent_devices = np.zeros((0, self.grouped.grouping.num_groups), dtype=np.int32)
        self._recent_rewards = np.zeros(0)
        self._ascend = tf.function(self._ascent_step)

    def propose(self) -> GroupedProposal | None:
        """K samples; one placement and then None where nothing can be chosen."""
        if self._num_trials > 0 and not self.grouped.has_choice:
            return None
        size = self.config.batch_size if self.grouped.has_choice else 1
        devices = self._policy.sample(self._rng, size)
        logs = self._policy.log_distributions().numpy()
        return GroupedProposal(
            self.grouped.device_of_op(devices), devices, np.broadcast_to(logs, (size, *logs.shape))
        )

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Proximal steps, or at the end of a period the fit to its elite; returns scalars."""
        assert isinstance(proposal, GroupedProposal)
        rewards = self._appraisal.rewards(outcomes)
        self._num_trials += len(outcomes)
        self._recent_devices = np.concatenate([self._recent_devices, proposal.devices])
        self._recent_rewards = np.concatenate([self._recent_rewards, rewards])
        scalars = {"mean_reward": float(rewards.mean())}
        if not self.grouped.has_choice:
            return scalars
        advantages = self._appraisal.advantages(rewards)
        if len(self._recent_rewards) >= self.config.elite_period:
            # The closed form doesn't depend on where f is: proximal steps before it were in vain.
            self._fit_elite()
            return scalars
        old = tf.constant(proposal.log_distributions)
        for _ in range(self.config.ascent_steps):
            loss = self._ascend(
                old, tf.constant(proposal.devices), tf.constant(advantages, tf.float32)
            )
            scalars["loss"] = float(loss)
        policy_gradient.require_finite("Post", {**scalars, "logits": self._policy.logits.numpy()})
        now = self._policy.log_distributions()[tf.newaxis]
        scalars["entropy"] = float(policy_gradient.mean_entropy(now))
        scalars["kl"] = float(tf.reduce_mean(policy_gradient.kl_divergence(old[:1], now)))
        return scalars

    def state(self) -> snapshot.Snapshot:
        """Weights, random generator, baseline, and the placements since the last elite."""
        return {
            **snapshot.of_variables("policy", self._policy.variables),
            "rng": snapshot.of_generator(self._rng),
            "baseline": self._appraisal.state,
            "num_trials": np.array(self._num_trials),
            "recent_devices": self._recent_devices,
            "recent_rewards": self._recent_rewards,
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        snapshot.into_variables("policy", self._policy.variables, state)
        snapshot.into_generator(self._rng, state["rng"])
        self._appraisal.state = state["baseline"]
        self._num_trials = int(state["num_trials"])
        self._recent_devices = state["recent_devices"]
        self._recent_rewards = state["recent_rewards"]

    def _fit_elite(self) -> None:
        config = self.config
        elite = policy_gradient.elite_indices(self._recent_rewards, config.elite_fraction)
        frequencies = policy_gradient.elite_frequencies(
            self._recent_devices[elite], self.grouped.problem.num_devices
        )
        left = max(0.0, 1.0 - self._num_trials / config.epsilon_trials)
        self._policy.assign(
            policy_gradient.mixed(frequencies, config.epsilon * left, self.grouped.allowed)
        )
        self._recent_devices = self._recent_devices[:0]
        self._recent_rewards = self._recent_rewards[:0]

    def _ascent_step(self, old: Tensor, devices: Tensor, advantage: Tensor) -> Tensor:
        """One plain gradient step up the penalised surrogate, against old log π f4[B, G, D]."""
        with tf.GradientTape() as tape:
            new = tf.broadcast_to(self._policy.log_distributions()[tf.newaxis], old.shape)
            loss = proximal_loss(new, old, devices, advantage, self.config.kl_weight)
        gradient = tape.gradient(loss, self._policy.logits)
        self._policy.logits.assign_sub(self.config.step_size * gradient)
        return loss


# A frequency of 0 becomes e^-30: as good as never, and a logit that a gradient can still move.
_LEAST_LOG = -30.0


class Categorical(tf.Module):
    """π(d_1 … d_G) = Π_g softmax(θ_g)_d, all θ = 0 at first (Post, Gao et al. 2018).

    Attributes:
      logits: θ, f4[G, D].
    """

    def __init__(self, log_prior: ProbabilityArray) -> None:
        """Uniform over what `log_prior` f4[G, D] (see distributions.log_prior) leaves."""
        super().__init__()
        self._log_prior = tf.constant(log_prior, tf.float32)
        self.logits = tf.Variable(tf.zeros(log_prior.shape), name="logits")

    def log_distributions(self) -> Tensor:
        """log π, f4[G, D]."""
        return tf.nn.log_softmax(self.logits + self._log_prior)

    def sample(self, rng: np.random.Generator, num_samples: int) -> IntArray:
        """Devices i4[B, G]."""
        logs = self.log_distributions().numpy()
        noise = rng.gumbel(size=(num_samples, *logs.shape))
        return np.argmax(logs + noise, axis=-1).astype(np.int32)

    def assign(self, frequencies: FloatArray) -> None:
        """Makes π_g the frequencies f8[G, D], which sum to 1 in each row."""
        with np.errstate(divide="ignore"):
            self.logits.assign(np.maximum(np.log(frequencies), _LEAST_LOG))

"""A sequence-to-sequence policy with its optimizer: it samples placements and learns from them."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray, IntArray
from graphs.protos import Tensor
from tfplace.algorithms.learned.config import AdamConfig, Seq2SeqConfig
from tfplace.algorithms.learned.learning import policy_gradient
from tfplace.algorithms.learned.policies.distributions import (
    GroupedProposal,
    ProbabilityArray,
    chosen_log_probs,
)
from tfplace.algorithms.learned.policies.seq2seq import Seq2Seq, Sequence
from tfplace.search.kept.snapshot import Snapshot

# (new log π f4[B, G, D], old log π f4[B, G, D], devices i4[B, G], advantages f4[B]) → scalar
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def reinforce_loss(new: Tensor, old: Tensor, devices: Tensor, advantage: Tensor) -> Tensor:
    """REINFORCE's Loss; the old distributions don't matter to it."""
    return policy_gradient.policy_gradient_loss(chosen_log_probs(new, devices), advantage)


def proximal_loss(
    new: Tensor, old: Tensor, devices: Tensor, advantage: Tensor, beta: float
) -> Tensor:
    """Spotlight's and Post's loss: proximal policy optimisation with a penalty of weight `beta`."""
    ratio = policy_gradient.probability_ratio(
        chosen_log_probs(new, devices), chosen_log_probs(old, devices)
    )
    return policy_gradient.penalised_loss(
        ratio, advantage, policy_gradient.kl_divergence(old, new), beta
    )


class SequenceLearner:
    """What ColocRL, HDP's Placer and Spotlight share; they differ in groups, batches and loss.

    Shapes are compiled in: a batch of another size than before compiles again.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        configs: tuple[Seq2SeqConfig, AdamConfig],
        loss: Loss,
        seed: int,
    ) -> None:
        """Makes an untrained policy; `shape` is F features per group and D devices."""
        policy, optimizer = configs
        self._policy = Seq2Seq(*shape, policy, seed)
        self._descent = policy_gradient.Descent(self._policy, optimizer)
        self._loss = loss
        self._sample = tf.function(self._policy.sample, jit_compile=policy.compiled)
        self._descend = tf.function(self._descent_step, jit_compile=policy.compiled)

    def sample(
        self, sequence: Sequence, noise: ProbabilityArray
    ) -> tuple[IntArray, ProbabilityArray]:
        """Devices i4[B, G] and log π f4[B, G, D] along them, from Gumbel noise f4[G, B, D].

        Raises:
          DivergedError: a probability is not a number.
        """
        devices, logs = (part.numpy() for part in self._sample(sequence, tf.constant(noise)))
        policy_gradient.require_finite("a sequence-to-sequence policy", {"log-probability": logs})
        return devices, logs

    def learn(
        self, sequence: Sequence, proposal: GroupedProposal, advantages: FloatArray, steps: int = 1
    ) -> dict[str, float]:
        """Takes optimizer steps on one batch; returns the last one's loss, entropy and KL.

        Args:
          proposal: B placements of it.
          advantages: f8[B].
          steps: 1 or more.

        Raises:
          DivergedError: the loss is not a number.
        """
        arguments = (
            tf.constant(proposal.log_distributions),
            tf.constant(proposal.devices),
            tf.constant(advantages, tf.float32),
        )
        for _ in range(steps):
            tensors = self._descend(sequence, *arguments)
        scalars = {name: float(value) for name, value in tensors.items()}
        policy_gradient.require_finite("a sequence-to-sequence policy", scalars)
        return scalars

    def state(self) -> Snapshot:
        """Weights and optimizer."""
        return self._descent.state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Assigns what `state` took; ValueError if the policy has other sizes."""
        self._descent.set_state(state)

    def _descent_step(
        self, sequence: Sequence, old: Tensor, devices: Tensor, advantage: Tensor
    ) -> dict[str, Tensor]:
        with tf.GradientTape() as tape:
            new = self._policy.log_distributions(sequence, devices)
            loss = self._loss(new, old, devices, advantage)
        self._descent.step(tape, loss)
        kl = tf.reduce_mean(policy_gradient.kl_divergence(old, new))
        return {"loss": loss, "entropy": policy_gradient.mean_entropy(new), "kl": kl}

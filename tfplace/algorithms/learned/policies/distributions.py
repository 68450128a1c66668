"""What all policies share: distributions over devices, kept as logarithms."""

import dataclasses

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from graphs.op_graph import FloatArray, IntArray
from graphs.protos import Tensor
from tfplace.grouping.quotient import BoolArray
from tfplace.search.trial import Proposal

# Added to the logit of a device that is not allowed: e^-1e9 is 0, and no sum overflows f4.
FORBIDDEN = -1e9


def log_prior(allowed: BoolArray, frequencies: FloatArray | None = None) -> "ProbabilityArray":
    """f4[G, D] to be added to logits: 0 where a group may lie and FORBIDDEN elsewhere.

    Args:
      allowed: bool[G, D].
      frequencies: f8[G, D] of the untrained policy, above 0 where it is allowed; None for uniform.
    """
    logs = np.log(np.where(allowed, 1.0 if frequencies is None else frequencies, 1.0))
    return np.where(allowed, logs, FORBIDDEN).astype(np.float32)


def gumbel_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> "ProbabilityArray":
    """Standard Gumbel noise f4: the largest logit + noise is a sample of the logits' softmax."""
    return rng.gumbel(size=shape).astype(np.float32)


def chosen_log_probs(log_distributions: Tensor, devices: IntArray | Tensor) -> Tensor:
    """f4[B, G]: the log-probability of devices i4[B, G] under log π f4[B, G, D]."""
    return tf.reduce_sum(
        log_distributions * tf.one_hot(devices, log_distributions.shape[-1]), axis=-1
    )


ProbabilityArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class GroupedProposal(Proposal):
    """Placements made of one device per group.

    Attributes:
      device_of_op: i4[B, N].
      devices: i4[B, G] device of each group.
      log_distributions: f4[B, G, D] log π of each group's device, given those of the groups
        before it, under the policy that sampled them.
    """

    devices: IntArray
    log_distributions: ProbabilityArray

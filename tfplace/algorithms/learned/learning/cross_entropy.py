"""Cross-entropy minimisation over independent choices, in closed form."""

from __future__ import annotations

import math

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from tfplace.grouping.quotient import BoolArray


def elite_indices(rewards: FloatArray, fraction: float) -> IntArray:
    """i4[E], E = ⌈fraction · B⌉ at least 1: the trials of the highest rewards, best first.

    Among equal rewards the earlier trial comes first.
    """
    count = max(1, math.ceil(fraction * len(rewards) - 1e-9))
    return np.argsort(-rewards, kind="stable")[:count].astype(np.int32)


def elite_frequencies(devices: IntArray, num_devices: int) -> FloatArray:
    """f_gd = (1/E) Σ_e 1[d_eg = d]: the minimiser of the cross-entropy to the elite, f8[G, D].

    Source: Gao et al., NeurIPS 2018 (Post), the closed form of its equation for the softmax of
    independent groups.

    Args:
      devices: i4[E, G] of the elite, E at least 1.
      num_devices: D.
    """
    one_hot = devices[:, :, np.newaxis] == np.arange(num_devices)
    return one_hot.mean(axis=0)


def close_to(devices: IntArray, epsilon: float, allowed: BoolArray) -> FloatArray:
    """f8[G, D]: the fit to an elite of one placement i4[G], mixed: how a search goes on from it."""
    return mixed(elite_frequencies(devices[np.newaxis], allowed.shape[1]), epsilon, allowed)


def mixed(frequencies: FloatArray, epsilon: float, allowed: BoolArray) -> FloatArray:
    """f ← (1 − ε) f + ε / D, with D the number of a group's allowed devices; f8[G, D].

    Args:
      frequencies: f8[G, D], rows sum to 1.
      epsilon: ε, 0 to 1: how much is kept uniform, so that no device dies out.
      allowed: bool[G, D]; the others keep their frequency of 0.
    """
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    return (1.0 - epsilon) * frequencies + epsilon * uniform

"""Dense layers with their weights made, so that seeds and shapes are known before the first use."""

from __future__ import annotations

from typing import Any

import tf_keras


def dense(inputs: int, units: int, activation: str | None, seed: int | None) -> Any:
    """A built tf-keras layer f4[..., inputs] → f4[..., units].

    Args:
      inputs: width of what it reads.
      units: width of what it gives.
      activation: as tf-keras names it; None for none.
      seed: of the Glorot weights; None for weights of zero, as an untrained policy's last layer has
        them to be uniform.
    """
    start = "zeros" if seed is None else tf_keras.initializers.GlorotUniform(seed)
    layer = tf_keras.layers.Dense(units, activation, kernel_initializer=start)
    layer.build([None, inputs])
    return layer

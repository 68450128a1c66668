"""Batch normalisation in training and its gradient, as ops that add up over parts of the batch.

  mean = sum(x) / n,  variance = sum((x - mean)^2) / n,  n = elements per channel
  y = (x - mean) * r * scale + offset,  r = 1 / sqrt(variance + epsilon)
  running variance: variance * n / (n - 1)
  d_offset = sum(d_y),  d_scale = sum(d_y * (x - mean)) * r
  d_x = scale * r * (d_y - d_offset / n - (x - mean) * r * d_scale / n)

(Ioffe and Szegedy 2015; TensorFlow's fused_batch_norm_op.cc.) The variance takes two passes:
E[x^2] - E[x]^2 would cancel.

Where channels come last and floats have 32 bits, TensorFlow's own fused kernels for given
statistics do most of that, so that images are read and written as seldom as can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def forward(
    attrs: Mapping[str, Any], x: Any, scale: Any, offset: Any, *old: Any, is_run_on: bool = True
) -> list[Any]:
    """FusedBatchNorm* in training.

    Args:
      attrs: of the op.
      x, scale, offset: what it reads.
      old: mean and variance to run on from.
      is_run_on: whether somebody reads mean and variance to run on with.

    Returns:
      What takes the place of its outputs: y, mean and variance to run on with, what the gradient
      reads (mean and variance), and what nobody reads any more.
    """
    import tensorflow as tf

    axes, wide = _axes(attrs), tf.cast(x, tf.float32)
    mean = tf.reduce_mean(wide, axes, name="mean")
    apart = tf.math.squared_difference(wide, _spread(attrs, mean))
    variance = tf.reduce_mean(apart, axes, name="variance")
    running = [mean, variance]
    if is_run_on:
        running = _running(attrs, x, old, mean, variance)
    y = _normalised(attrs, x, scale, offset, mean, variance)
    return [y, *running, mean, variance, variance]


def _running(
    attrs: Mapping[str, Any], x: Any, old: Sequence[Any], mean: Any, variance: Any
) -> list[Any]:
    """Mean and variance to run on with: (1 - f) * old + f * (mean, variance * n / (n - 1))."""
    import tensorflow as tf

    n, one = _count(attrs, x), tf.constant(1, tf.float32)
    unbiased = variance * (n / tf.maximum(n - one, one, name="divisor"))
    factor = attrs["exponential_avg_factor"]
    if factor == 1.0:
        return [mean, unbiased]
    kept, taken = tf.constant(np.float32(1) - np.float32(factor)), tf.constant(factor, tf.float32)
    return [old[0] * kept + mean * taken, old[1] * kept + unbiased * taken]


def backward(
    attrs: Mapping[str, Any], d_y: Any, x: Any, scale: Any, mean: Any, variance: Any
) -> list[Any]:
    """FusedBatchNormGrad* in training.

    Returns:
      What takes the place of its outputs 0 to 2: d_x, d_scale, d_offset.
    """
    import tensorflow as tf

    r = tf.math.rsqrt(variance + attrs["epsilon"])
    slope = scale * r  # what d_y is multiplied with
    n, axes, dtype = _count(attrs, x), _axes(attrs), x.dtype
    if dtype == tf.float32 and channel_axis(attrs) != 1:
        return _fused_backward(attrs, slope / n, d_y, x, scale, mean, variance)
    d_y, x = tf.cast(d_y, tf.float32), tf.cast(x, tf.float32)
    x = x - _spread(attrs, mean)
    d_offset = tf.reduce_sum(d_y, axes)
    d_scale = tf.reduce_sum(d_y * x, axes) * r
    moved = x * _spread(attrs, d_scale / n * r) + _spread(attrs, d_offset / n)
    d_x = (d_y - moved) * _spread(attrs, slope)
    return [tf.cast(d_x, dtype), d_scale, d_offset]


def _fused_backward(
    attrs: Mapping[str, Any], slope: Any, d_y: Any, x: Any, scale: Any, *given: Any
) -> list[Any]:
    """The same with two fused kernels; slope is that of one element, divided by n.

    The gradient for given statistics is scale * r * d_y, d_scale and d_offset; what is missing,
    -slope / n * (d_offset + (x - mean) * r * d_scale), is a normalisation of x.
    """
    import tensorflow as tf

    d_x, d_scale, d_offset, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=d_y, x=x, scale=scale, reserve_space_1=given[0], reserve_space_2=given[1],
        reserve_space_3=given[1], **_of_given(attrs),
    )  # fmt: skip
    slope = -slope
    correction = _normalised(attrs, x, slope * d_scale, slope * d_offset, *given)
    return [d_x + correction, d_scale, d_offset]


def _of_given(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of TensorFlow's kernels for given statistics."""
    layout = attrs["data_format"].decode()
    return {"epsilon": attrs["epsilon"], "data_format": layout, "is_training": False}


def _normalised(attrs: Mapping[str, Any], x: Any, *others: Any) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by the fused kernel."""
    import tensorflow as tf

    names = ("scale", "offset", "mean", "variance")
    inputs = dict(zip(names, others, strict=True))
    return tf.raw_ops.FusedBatchNormV3(x=x, **inputs, **_of_given(attrs))[0]


def channel_axis(attrs: Mapping[str, Any]) -> int:
    """Which dimension the channels are: 1 or the last one."""
    return 1 if attrs["data_format"].startswith(b"NC") else len(attrs["data_format"]) - 1


def _axes(attrs: Mapping[str, Any]) -> list[int]:
    """All dimensions but the channels."""
    return [axis for axis in range(len(attrs["data_format"])) if axis != channel_axis(attrs)]


def _spread(attrs: Mapping[str, Any], vector: Any) -> Any:
    """A number for each channel, so that it is broadcast over images."""
    import tensorflow as tf

    if channel_axis(attrs) != 1:
        return vector
    return tf.reshape(vector, [1, *vector.shape, *[1] * (len(attrs["data_format"]) - 2)])


def _count(attrs: Mapping[str, Any], x: Any) -> Any:
    """n: how many elements there are per channel, counted when it runs."""
    import tensorflow as tf

    channels = x.shape[channel_axis(attrs)]
    size = tf.raw_ops.Size(input=x, out_type=tf.int64)  # tf.size would be a constant
    return tf.cast(size, tf.float32) / tf.constant(channels, tf.float32, name="channels")

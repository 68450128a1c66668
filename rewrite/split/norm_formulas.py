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

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from rewrite.split.norm_ops import Images, NewOps, count, normalised, reduced, spread
from rewrite.split.op_view import attr_of


def forward(
    new: NewOps, node: Any, inputs: Sequence[str], images: Images, used: Set[int]
) -> list[str]:
    """Adds FusedBatchNorm* in training as several ops.

    Args:
      new: where ops are added.
      node: FusedBatchNorm, V2 or V3.
      inputs: x, scale, offset, running mean, running variance.
      images: what x is.
      used: which outputs somebody reads.

    Returns:
      The tensors that take the place of outputs 0 to 4: y, mean, variance to run on with, and
      what the gradient reads: mean and variance.
    """
    x = new.cast("x", inputs[0], images.shape, images.dtype, "float32")
    mean = reduced(new, "Mean", "mean", x, images)
    apart = new.floats(
        "SquaredDifference", "deviation", [x, spread(new, "mean/spread", mean, images)],
        images.shape,
    )  # fmt: skip
    variance = reduced(new, "Mean", "variance", apart, images)
    running = [mean, variance]
    if used & {1, 2}:
        running = _running(new, node, [inputs[0], *inputs[3:], mean, variance], images)
    y = normalised(new, "", [*inputs[:3], mean, variance], images)
    return [y, *running, mean, variance]


def _running(new: NewOps, node: Any, inputs: Sequence[str], images: Images) -> list[str]:
    """Mean and variance to run on with: (1 - f) * old + f * (mean, variance * n / (n - 1)).

    Inputs are x, the old mean and variance, the batch's mean and variance.
    """
    rows, one = images.channels, new.const("one", np.array(1, np.float32))
    n = count(new, inputs[0], images)
    less = new.floats("Sub", "count/less_one", [n, one], ())
    divisor = new.floats("Maximum", "count/divisor", [less, one], ())
    ratio = new.floats("RealDiv", "count/ratio", [n, divisor], ())
    unbiased = new.floats("Mul", "variance/unbiased", [inputs[4], ratio], rows)
    factor = attr_of(node, "exponential_avg_factor").f
    if factor == 1.0:
        return [inputs[3], unbiased]
    kept = new.const("kept", np.array(np.float32(1) - np.float32(factor), np.float32))
    taken = new.const("taken", np.array(factor, np.float32))
    results = []
    for name, old, batch in (("mean", inputs[1], inputs[3]), ("variance", inputs[2], unbiased)):
        terms = [
            new.floats("Mul", f"running_{name}/old", [old, kept], rows),
            new.floats("Mul", f"running_{name}/batch", [batch, taken], rows),
        ]
        results.append(new.floats("AddV2", f"running_{name}", terms, rows))
    return results


def backward(new: NewOps, inputs: Sequence[str], images: Images) -> list[str]:
    """Adds FusedBatchNormGrad* in training as several ops.

    Args:
      new: where ops are added.
      inputs: d_y, x, scale, mean, variance.
      images: what x is.

    Returns:
      The tensors that take the place of outputs 0 to 2: d_x, d_scale, d_offset.
    """
    scale, mean, variance = inputs[2:]
    rows = images.channels
    epsilon = new.const("epsilon", np.array(images.epsilon, np.float32))
    shifted = new.floats("AddV2", "variance/shifted", [variance, epsilon], rows)
    r = new.floats("Rsqrt", "r", [shifted], rows)
    slope = new.floats("Mul", "slope", [scale, r], rows)  # what d_y is multiplied with
    n = count(new, inputs[1], images)
    if images.is_fused:
        return _fused_backward(new, inputs, slope, n, images)
    d_y, x = (
        new.cast(name, tensor, images.shape, images.dtype, "float32")
        for name, tensor in (("d_y", inputs[0]), ("x", inputs[1]))
    )
    x = new.floats("Sub", "x/centred", [x, spread(new, "mean", mean, images)], images.shape)
    product = new.floats("Mul", "product", [d_y, x], images.shape)
    d_offset = reduced(new, "Sum", "d_offset", d_y, images)
    d_scale = new.floats("Mul", "d_scale", [reduced(new, "Sum", "sum", product, images), r], rows)
    first = new.floats("RealDiv", "d_offset/mean", [d_offset, n], rows)
    second = new.floats("RealDiv", "d_scale/mean", [d_scale, n], rows)
    second = new.floats("Mul", "d_scale/mean/r", [second, r], rows)
    moved = new.floats("Mul", "moved", [x, spread(new, "second", second, images)], images.shape)
    moved = new.floats(
        "AddV2", "moved/all", [moved, spread(new, "first", first, images)], images.shape
    )
    d_x = new.floats("Sub", "d_x/unscaled", [d_y, moved], images.shape)
    is_wide = images.dtype == "float32"
    d_x = new.floats(
        "Mul", "" if is_wide else "d_x", [d_x, spread(new, "slope/spread", slope, images)],
        images.shape,
    )  # fmt: skip
    return [new.cast("", d_x, images.shape, "float32", images.dtype), d_scale, d_offset]


def _fused_backward(
    new: NewOps, inputs: Sequence[str], slope: str, n: str, images: Images
) -> list[str]:
    """The same with two fused kernels.

    The gradient for given statistics is scale * r * d_y, d_scale and d_offset; what is missing,
    -slope / n * (d_offset + (x - mean) * r * d_scale), is a normalisation of x.
    """
    rows, big = images.channels, images.shape
    terms = new.op_of_many(
        "FusedBatchNormGradV3", "terms", [*inputs, inputs[4]], [big, rows, rows, (0,), (0,)],
        ["float32"] * 5, T="float32", U="float32", data_format=images.layout,
        epsilon=images.epsilon, is_training=False,
    ).removesuffix(":0")  # fmt: skip
    d_scale, d_offset = f"{terms}:1", f"{terms}:2"
    each = new.floats("RealDiv", "slope/each", [slope, n], rows)
    each = new.floats("Neg", "slope/negative", [each], rows)
    factors = [
        new.floats("Mul", f"correction/{name}", [each, tensor], rows)
        for name, tensor in (("scale", d_scale), ("offset", d_offset))
    ]
    correction = normalised(new, "correction", [inputs[1], *factors, *inputs[3:]], images)
    d_x = new.floats("AddV2", "", [f"{terms}:0", correction], big)
    return [d_x, d_scale, d_offset]

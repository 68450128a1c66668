"""Formulas, in float64, of ops that TensorFlow has no float64 kernels for.

They are what the ops' documentation says, and are used to compare runs, never in a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewrite.split.traced import traced


def written_out(node: Any, inputs: Sequence[str]) -> list[Any]:
    """NodeDefs for an op of FORMULAS; the last has its name and its outputs.

    Args:
      node: the op as it came.
      inputs: what it reads, floats in float64; control inputs last.
    """
    import tensorflow as tf

    data = [name for name in inputs if not name.startswith("^")]
    controls = [name for name in inputs if name.startswith("^")]
    formula = traced(node, FORMULAS[node.op], [("float64", None)] * len(data))
    made, outputs = formula.copied(data, lambda op: f"{node.name}/float64/{op}")
    for each in made:
        if not each.input:
            each.input.extend(controls)
    last = type(node)(name=node.name, op="IdentityN", input=[*outputs, *controls])
    last.attr["T"].list.type.extend([tf.float64.as_datatype_enum] * len(outputs))
    return [*made, last]


def _norm(attrs: Mapping[str, Any], x: Any, scale: Any, offset: Any, *old: Any) -> list[Any]:
    """FusedBatchNorm*: (x - mean) / sqrt(variance + epsilon) * scale + offset."""
    import tensorflow as tf

    x, back, axes = _channels_last(attrs, x)
    mean, variance = old
    running = list(old)
    if attrs["is_training"]:
        mean = tf.reduce_mean(x, axes)
        variance = tf.reduce_mean(tf.square(x - mean), axes)
        n = tf.cast(tf.size(x) / tf.size(mean), tf.float64)
        unbiased = variance * n / tf.maximum(n - 1.0, 1.0)
        factor = attrs.get("exponential_avg_factor", 1.0)
        batch = (mean, unbiased)
        running = [
            b if factor == 1.0 else (1.0 - factor) * o + factor * b
            for o, b in zip(running, batch, strict=True)
        ]
    y = (x - mean) * tf.math.rsqrt(variance + attrs["epsilon"]) * scale + offset
    return [back(y), *running, mean, variance, tf.zeros([0], tf.float64)]


def _norm_gradient(
    attrs: Mapping[str, Any], d_y: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any
) -> list[Any]:
    """FusedBatchNormGrad*, by the chain rule from `_norm`."""
    import tensorflow as tf

    d_y = _channels_last(attrs, d_y)[0]
    x, back, axes = _channels_last(attrs, x)
    root = tf.math.rsqrt(variance + attrs["epsilon"])
    normal = (x - mean) * root
    d_offset, d_scale = tf.reduce_sum(d_y, axes), tf.reduce_sum(d_y * normal, axes)
    d_x = d_y * scale * root
    if attrs["is_training"]:
        d_mean, d_normal = tf.reduce_mean(d_y, axes), tf.reduce_mean(d_y * normal, axes)
        d_x = scale * root * (d_y - d_mean - normal * d_normal)
    nothing = tf.zeros([0], tf.float64)
    return [back(d_x), d_scale, d_offset, nothing, nothing]


def _channels_last(attrs: Mapping[str, Any], x: Any) -> tuple[Any, Callable[[Any], Any], list[int]]:
    """The images with their channels last, what turns them back, and all other axes."""
    import tensorflow as tf

    layout = attrs["data_format"]
    axes = list(range(len(layout) - 1))
    if not layout.startswith(b"NC"):
        return x, lambda y: y, axes
    rank = len(layout)
    there, back = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    return tf.transpose(x, there), lambda y: tf.transpose(y, back), axes


def _response(attrs: Mapping[str, Any], x: Any) -> list[Any]:
    """LRN: x / (bias + alpha * sum of squares over neighbouring channels) ** beta."""
    import tensorflow as tf

    radius = attrs["depth_radius"]
    padded = tf.pad(tf.square(x), [[0, 0], [0, 0], [0, 0], [radius, radius]])
    depth = tf.shape(x)[3]
    sums = [padded[:, :, :, i : i + depth] for i in range(2 * radius + 1)]
    return [x * (attrs["bias"] + attrs["alpha"] * tf.add_n(sums)) ** -attrs["beta"]]


def _response_gradient(attrs: Mapping[str, Any], d_y: Any, x: Any, _: Any) -> list[Any]:
    """LRNGrad."""
    import tensorflow as tf

    return [tf.gradients(_response(attrs, x)[0], x, d_y)[0]]


FORMULAS: Mapping[str, Callable[..., list[Any]]] = {
    "FusedBatchNormV3": _norm,
    "FusedBatchNormV2": lambda *inputs: _norm(*inputs)[:5],
    "FusedBatchNorm": lambda *inputs: _norm(*inputs)[:5],
    "FusedBatchNormGradV3": _norm_gradient,
    "FusedBatchNormGradV2": _norm_gradient,
    "FusedBatchNormGrad": _norm_gradient,
    "LRN": _response,
    "LRNGrad": _response_gradient,
}

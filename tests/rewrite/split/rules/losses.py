"""Losses that know how large the batch is, each in another way."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 5


def batch_of(size):
    """Images [B, 3, 4], labels [B], weights [B] of which some are 0, a mask [B, 3]."""
    rng = np.random.default_rng(size)
    return {
        "x:0": rng.normal(size=(size, 3, 4)).astype(np.float32),
        "labels:0": rng.integers(0, 4, size).astype(np.int32),
        "weights:0": (rng.uniform(size=size) * (np.arange(size) % 3 > 0)).astype(np.float32),
        "mask:0": np.arange(size * 3).reshape(size, 3) % 4 > 0,
    }


def numbers(tensor):
    return tf.cast(tensor, tf.float32)


def per_example(x, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.reduce_sum(x, 1))


def masked_mean(x, mask):
    return tf.reduce_sum(tf.reduce_sum(x, 2) * numbers(mask)) / tf.reduce_sum(numbers(mask))


def normalised(x):
    """Batch normalisation by hand."""
    mean, variance = tf.nn.moments(x, [0, 1])
    return (x - mean) * tf.math.rsqrt(variance + 0.1)


def centred(x):
    return x - tf.reduce_mean(x, 0, keepdims=True)


def weighted(x, labels, weights):
    losses = per_example(x, labels) * weights
    return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.reduce_sum(weights))


def by_keras(loss_name, reduction, *, with_weights=False):
    def loss(x, labels, weights, mask):
        import keras

        made = getattr(keras.losses, loss_name)(reduction=reduction)
        is_sparse = "Sparse" in loss_name
        truth = labels if is_sparse else tf.one_hot(labels, 4)
        logits = tf.nn.softmax(tf.reduce_sum(x, 1))
        return made(truth, logits, sample_weight=weights if with_weights else None)

    return loss


# {name: the loss of images, labels, weights and mask}
LOSSES = {
    "by shape": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.shape(x)[0]),
    "by a shape of 64 bits": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.shape(x, tf.int64)[0]),
    "by two sizes": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.shape(x)[0] * tf.shape(x)[1]),
    "by size": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.size(x)),
    "by a later size": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.size(tf.tanh(x))),
    "by a merged size": lambda x, *_: (
        tf.reduce_sum(x * x) / numbers(tf.shape(tf.reshape(x, [-1, 4]))[0])
    ),
    "by a product of the shape": lambda x, *_: (
        tf.reduce_sum(x * x) / numbers(tf.reduce_prod(tf.shape(x)[:2]))
    ),
    "by shapes": lambda x, labels, *_: (
        tf.reduce_sum(x * x) / numbers(tf.raw_ops.ShapeN(input=[x, x * 2])[1][0])
    ),
    "by rank": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.rank(x)),
    "by a constant": lambda x, *_: tf.reduce_sum(x * x) / BATCH,
    "by the mask's size": lambda x, _, __, mask: tf.reduce_sum(x * x) / numbers(tf.size(mask)),
    "by the mask's sum": lambda x, _, __, mask: masked_mean(x, mask),
    "by a count of what is there": lambda x, _, __, mask: (
        tf.reduce_sum(x * x) / numbers(tf.math.count_nonzero(mask))
    ),
    "by a count of rows": lambda x, _, w, __: (
        tf.reduce_sum(x * x) / numbers(tf.shape(tf.where(w > 0))[0])
    ),
    "by ones summed": lambda x, *_: tf.reduce_sum(x * x) / tf.reduce_sum(tf.ones_like(x[:, 0, 0])),
    "mean": lambda x, labels, *_: tf.reduce_mean(per_example(x, labels)),
    "mean over all axes": lambda x, *_: tf.reduce_mean(tf.square(x)),
    "mean over two axes": lambda x, *_: tf.reduce_sum(tf.reduce_mean(x * x, [0, 1]) ** 2),
    "mean of means": lambda x, *_: tf.reduce_mean(tf.reduce_mean(x * x, [1, 2])),
    "mean of means, batch first": lambda x, *_: tf.reduce_mean(tf.reduce_mean(x * x, 0) ** 2),
    "mean of a merged axis": lambda x, *_: tf.reduce_mean(tf.reshape(x, [-1, 4]) ** 2, 0)[1],
    "mean of time and batch": lambda x, *_: tf.reduce_mean(
        tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 4]) ** 3
    ),
    "sum times one over": lambda x, *_: tf.reduce_sum(x * x) * (1.0 / numbers(tf.shape(x)[0])),
    "rows divided first": lambda x, *_: tf.reduce_sum(x * x / numbers(tf.shape(x)[0])),
    "scaled by the root": lambda x, *_: tf.reduce_sum(x * x) / tf.sqrt(numbers(tf.shape(x)[0])),
    "loss scaling": lambda x, labels, *_: tf.reduce_mean(per_example(x * 1024, labels)) / 1024,
    "weighted": lambda x, labels, w, _: weighted(x, labels, w),
    "weighted mean": lambda x, labels, w, _: tf.reduce_mean(per_example(x, labels) * w),
    "no weights": lambda x, labels, w, _: weighted(x, labels, w * 0),
    "v1 weighted": lambda x, labels, w, _: v1.losses.sparse_softmax_cross_entropy(
        labels, tf.reduce_sum(x, 1), w
    ),
    "v1 by batch": lambda x, labels, w, _: v1.losses.compute_weighted_loss(
        per_example(x, labels), w, reduction=v1.losses.Reduction.SUM_OVER_BATCH_SIZE
    ),
    "v1 by weights": lambda x, labels, w, _: v1.losses.compute_weighted_loss(
        per_example(x, labels), w, reduction=v1.losses.Reduction.SUM_BY_NONZERO_WEIGHTS
    ),
    "average loss": lambda x, labels, *_: tf.nn.compute_average_loss(per_example(x, labels)),
    "variance": lambda x, *_: tf.reduce_sum(tf.math.reduce_variance(x, 0)),
    "deviation": lambda x, *_: tf.math.reduce_std(x),
    "batch normalisation": lambda x, *_: tf.reduce_sum(tf.tanh(normalised(x)) ** 3),
    "centred": lambda x, *_: tf.reduce_sum(centred(x) ** 4) / numbers(tf.size(x)),
    "largest": lambda x, *_: tf.reduce_sum(tf.reduce_max(x, 0) - tf.reduce_min(x, 0)),
    "log of a sum": lambda x, *_: tf.reduce_sum(tf.reduce_logsumexp(x, 0)),
    "norm": lambda x, *_: tf.norm(x) / numbers(tf.shape(x)[0]),
    "l2": lambda x, *_: tf.nn.l2_loss(x) / numbers(tf.shape(x)[0]),
    "clipped by norm": lambda x, *_: tf.reduce_sum(tf.clip_by_global_norm([x], 1.0)[0][0] ** 3),
    "broadcast to": lambda x, *_: tf.reduce_mean(
        x
        * tf.broadcast_to(tf.constant([[2.0], [3.0], [4.0]]), tf.concat([tf.shape(x)[:2], [1]], 0))
    ),
    "filled": lambda x, *_: tf.reduce_sum(
        x * tf.fill(tf.shape(x), 1.0 / numbers(tf.shape(x)[0])) ** 2
    ),
    "row numbers": lambda x, *_: tf.reduce_sum(
        tf.reduce_sum(x, [1, 2]) * numbers(tf.range(tf.shape(x)[0]))
    ),
    "zeros before": lambda x, *_: tf.reduce_mean(
        tf.concat([tf.zeros([tf.shape(x)[0], 1, 4]), x], 1) ** 2
    ),
    "a state of zeros": lambda x, *_: tf.reduce_mean(
        tf.tanh(tf.zeros([tf.shape(x)[0], 4]) @ tf.ones([4, 4]) + x[:, 0]) ** 2
    ),
    "tiled": lambda x, *_: tf.reduce_mean(
        x * tf.tile(tf.constant([[[1.0, 2.0, 3.0, 4.0]]]), [tf.shape(x)[0], 3, 1])
    ),
    "one hot": lambda x, labels, *_: tf.reduce_mean(tf.one_hot(labels, 4) * x[:, 1]),
    "taken out": lambda x, *_: tf.reduce_sum(x[: tf.shape(x)[0]] ** 2) / numbers(tf.shape(x)[0]),
    "every pair": lambda x, *_: tf.reduce_mean(tf.matmul(x[:, 0], x[:, 0], transpose_b=True)),
    "in-batch negatives": lambda x, *_: tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.range(tf.shape(x)[0]), tf.matmul(x[:, 0], x[:, 1], transpose_b=True)
        )
    ),
    "keras": by_keras("SparseCategoricalCrossentropy", "sum_over_batch_size"),
    "keras sum": by_keras("SparseCategoricalCrossentropy", "sum"),
    "keras weighted": by_keras(
        "SparseCategoricalCrossentropy", "sum_over_batch_size", with_weights=True
    ),
    "keras by weights": by_keras("MeanSquaredError", "mean_with_sample_weight", with_weights=True),
    "keras huber": by_keras("Huber", "sum_over_batch_size", with_weights=True),
}

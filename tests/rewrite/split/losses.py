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


def divided_if_any(total, count):
    return tf.cond(count > 0, lambda: total / count, lambda: 0.0 * total)


def covariance(x):
    rows = centred(x[:, 0])
    return tf.matmul(rows, rows, transpose_a=True) / numbers(tf.shape(x)[0] - 1)


def apart(x):
    """Distances of all pairs of entries."""
    squares = tf.reduce_sum(x * x, 1)
    inner = tf.matmul(x, x, transpose_b=True)
    return squares[:, None] - 2 * inner + squares[None, :]


def checked(x, labels):
    """Asserts, as losses are written with."""
    same = tf.debugging.assert_equal(tf.shape(x)[0], tf.shape(labels)[0])
    with tf.control_dependencies([same, tf.debugging.assert_non_negative(labels)]):
        return tf.reduce_mean(tf.debugging.check_numerics(x, "x") ** 2)


def balanced(x, labels):
    """Each class counts alike."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(labels, tf.float32), labels, 4)
    return tf.reduce_mean(per_example(x, labels) / tf.gather(counts, labels))


def penalised(x):
    """A gradient's own norm, as in a Wasserstein GAN."""
    slopes = tf.gradients(tf.reduce_sum(tf.tanh(x) ** 2), x)[0]
    return tf.reduce_mean((tf.sqrt(tf.reduce_sum(slopes**2, [1, 2]) + 1e-3) - 1) ** 2)


def smoothed(x, labels):
    truth = tf.one_hot(labels, 4) * 0.9 + 0.1 / 4
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(truth, x[:, 0]))


def with_auxiliary(x, labels):
    main, other = per_example(x, labels), per_example(x * x, labels)
    return tf.add_n([tf.reduce_mean(main), 0.3 * tf.reduce_mean(other), tf.nn.l2_loss(x) * 1e-2])


def looped(x):
    """A loop over time whose sum is divided by the batch."""
    total = tf.constant(0.0)
    for step in range(3):
        total += tf.reduce_sum(tf.square(x[:, step])) / numbers(tf.shape(x)[0])
    return total / 3


def by_keras(loss_name, reduction, *, with_weights=False):
    def loss(x, labels, weights, mask):
        import keras

        made = getattr(keras.losses, loss_name)(reduction=reduction)
        is_sparse = "Sparse" in loss_name
        truth = labels if is_sparse else tf.one_hot(labels, 4)
        logits = tf.nn.softmax(tf.reduce_sum(x, 1))
        return made(truth, logits, sample_weight=weights if with_weights else None)

    return loss


def by_tf_keras(loss_name, reduction, **more):
    def loss(x, labels, weights, mask):
        import tf_keras

        made = getattr(tf_keras.losses, loss_name)(reduction=reduction, **more)
        return made(
            tf.one_hot(labels, 4), tf.nn.softmax(tf.reduce_sum(x, 1)), sample_weight=weights
        )

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
    "by the labels' size": lambda x, labels, *_: tf.reduce_sum(x * x) / numbers(tf.size(labels)),
    "by a double": lambda x, *_: numbers(
        tf.cast(tf.reduce_sum(x * x), tf.float64) / tf.cast(tf.shape(x)[0], tf.float64)
    ),
    "by a half": lambda x, *_: tf.reduce_sum(x * x) / numbers(tf.cast(tf.shape(x)[0], tf.float16)),
    "by the larger of two": lambda x, _, __, mask: (
        tf.reduce_sum(x * x)
        / numbers(tf.maximum(tf.shape(x)[0], tf.reduce_sum(tf.cast(mask, tf.int32))))
    ),
    "by the shape's power": lambda x, *_: (
        tf.reduce_sum(x * x) * tf.pow(numbers(tf.shape(x)[0]), -0.5)
    ),
    "by a count, if any": lambda x, _, w, __: divided_if_any(
        tf.reduce_sum(x * x), tf.reduce_sum(numbers(w > 0))
    ),
    "mean of what is there": lambda x, _, w, __: tf.reduce_mean(tf.boolean_mask(x, w > 0) ** 2),
    "mean by average loss": lambda x, labels, *_: tf.nn.compute_average_loss(
        per_example(x, labels), global_batch_size=2 * tf.shape(x)[0]
    ),
    "average loss, weighted": lambda x, labels, w, _: tf.nn.compute_average_loss(
        per_example(x, labels), sample_weight=w
    ),
    "regularised": lambda x, *_: (
        tf.reduce_mean(x) ** 2 + tf.nn.scale_regularization_loss(tf.reduce_sum(x**2))
    ),
    "smoothed labels": lambda x, labels, *_: smoothed(x, labels),
    "auxiliary losses": lambda x, labels, *_: with_auxiliary(x, labels),
    "asserts": lambda x, labels, *_: checked(x, labels),
    "balanced classes": lambda x, labels, *_: balanced(x, labels),
    "a gradient's penalty": lambda x, *_: penalised(x),
    "time by time": lambda x, *_: looped(x),
    "covariance": lambda x, *_: tf.reduce_sum(covariance(x) ** 2),
    "all distances": lambda x, *_: tf.reduce_mean(tf.exp(-apart(x[:, 0]))),
    "entropy of the mean": lambda x, *_: (
        -tf.reduce_sum(
            tf.reduce_mean(tf.nn.softmax(x[:, 0]), 0)
            * tf.math.log(tf.reduce_mean(tf.nn.softmax(x[:, 0]), 0))
        )
    ),
    "softmax over the batch": lambda x, *_: tf.reduce_sum(tf.nn.softmax(x[:, 0], 0) ** 2),
    "hardest half": lambda x, labels, *_: tf.reduce_mean(
        tf.math.top_k(per_example(x, labels), tf.shape(x)[0] // 2)[0]
    ),
    "sorted": lambda x, *_: tf.reduce_sum(
        tf.sort(tf.reduce_sum(x, [1, 2])) * numbers(tf.range(tf.shape(x)[0]))
    ),
    "running sum": lambda x, *_: tf.reduce_mean(tf.cumsum(x, 0) ** 2),
    "mixed with the next": lambda x, *_: tf.reduce_mean((0.7 * x + 0.3 * tf.roll(x, 1, 0)) ** 3),
    "mixed with the reversed": lambda x, *_: tf.reduce_mean((x * tf.reverse(x, [0])) ** 2),
    "halves": lambda x, *_: (
        tf.reduce_mean(x[: tf.shape(x)[0] // 2] ** 2) - tf.reduce_mean(x[tf.shape(x)[0] // 2 :])
    ),
    "first against the others": lambda x, *_: tf.reduce_mean((x[:1] - x[1:]) ** 2),
    "differences in a row": lambda x, *_: (
        tf.reduce_sum((x[1:] - x[:-1]) ** 2) / numbers(tf.shape(x)[0] - 1)
    ),
    "picked rows": lambda x, labels, *_: tf.reduce_mean(
        tf.gather_nd(x[:, 0], tf.stack([tf.range(tf.shape(x)[0]), labels], 1)) ** 2
    ),
    "dropped out": lambda x, *_: tf.reduce_mean(
        tf.nn.experimental.stateless_dropout(x, 0.4, [1, 2]) ** 2
    ),
    "noise": lambda x, *_: tf.reduce_mean(
        (x + tf.random.stateless_normal(tf.shape(x), [1, 2])) ** 2
    ),
    "a mean that has no gradient": lambda x, *_: (
        tf.reduce_sum((x - tf.stop_gradient(tf.reduce_mean(x, 0))) ** 4) / numbers(tf.shape(x)[0])
    ),
    "keras": by_keras("SparseCategoricalCrossentropy", "sum_over_batch_size"),
    "keras sum": by_keras("SparseCategoricalCrossentropy", "sum"),
    "keras weighted": by_keras(
        "SparseCategoricalCrossentropy", "sum_over_batch_size", with_weights=True
    ),
    "keras by weights": by_keras("MeanSquaredError", "mean_with_sample_weight", with_weights=True),
    "keras huber": by_keras("Huber", "sum_over_batch_size", with_weights=True),
    "keras focal": by_keras("CategoricalFocalCrossentropy", "sum_over_batch_size"),
    "keras cosine": by_keras("CosineSimilarity", "mean", with_weights=True),
    "keras hinge": by_keras("CategoricalHinge", "sum", with_weights=True),
    "keras divergence": by_keras("KLDivergence", "sum_over_batch_size", with_weights=True),
    "keras log cosh": by_keras("LogCosh", "mean_with_sample_weight", with_weights=True),
    "tf_keras": by_tf_keras("CategoricalCrossentropy", "auto", label_smoothing=0.1),
    "tf_keras sum": by_tf_keras("CategoricalCrossentropy", "sum"),
    "tf_keras by batch": by_tf_keras("MeanSquaredError", "sum_over_batch_size"),
}

"""More losses that know how large the batch is, or what its other entries are."""

from __future__ import annotations

import tensorflow as tf

from tests.rewrite.split.rules.losses import by_keras, centred, numbers, per_example


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


def by_tf_keras(loss_name, reduction, **more):
    def loss(x, labels, weights, mask):
        import tf_keras

        made = getattr(tf_keras.losses, loss_name)(reduction=reduction, **more)
        return made(
            tf.one_hot(labels, 4), tf.nn.softmax(tf.reduce_sum(x, 1)), sample_weight=weights
        )

    return loss


# {name: the loss of images, labels, weights and mask}
MORE_LOSSES = {
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
    "diagonals": lambda x, *_: tf.reduce_sum(tf.linalg.diag_part(x)),
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
    "keras focal": by_keras("CategoricalFocalCrossentropy", "sum_over_batch_size"),
    "keras cosine": by_keras("CosineSimilarity", "mean", with_weights=True),
    "keras hinge": by_keras("CategoricalHinge", "sum", with_weights=True),
    "keras divergence": by_keras("KLDivergence", "sum_over_batch_size", with_weights=True),
    "keras log cosh": by_keras("LogCosh", "mean_with_sample_weight", with_weights=True),
    "tf_keras": by_tf_keras("CategoricalCrossentropy", "auto", label_smoothing=0.1),
    "tf_keras sum": by_tf_keras("CategoricalCrossentropy", "sum"),
    "tf_keras by batch": by_tf_keras("MeanSquaredError", "sum_over_batch_size"),
}

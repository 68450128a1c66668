"""Training steps that do more than descend a gradient: what is clipped, scaled, averaged, counted.

Each maker makes the variables of a step and returns the step, a function of images and labels.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

FEATURES, CLASSES = 4, 3


def matrix(*shape, name="w"):
    value = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
    return tf.Variable(value * 0.5, name=name)


def losses(w, x, y):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.tanh(x @ w[0]) @ w[1])


def two_layers():
    return [matrix(FEATURES, 6), matrix(6, CLASSES)]


def changed(change):
    """A step that changes its gradients before it descends them."""
    return _descending(change=change)


def penalised(penalty):
    """A step whose loss has a term of its variables alone, or of both."""
    return _descending(penalty)


def _descending(penalty=None, change=list):
    def make():
        w = two_layers()

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(losses(w, x, y))
                if penalty is not None:
                    loss += penalty(w, x)
            for variable, gradient in zip(w, change(tape.gradient(loss, w)), strict=True):
                variable.assign_sub(0.3 * gradient)
            return loss

        return step

    return make


def optimised(make_optimizer):
    """A step of one of Keras's optimizers."""

    def make():
        w, optimizer = two_layers(), make_optimizer()
        optimizer.build(w)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(losses(w, x, y))
                is_scaled = hasattr(optimizer, "scale_loss")
                scaled = optimizer.scale_loss(loss) if is_scaled else loss
            optimizer.apply_gradients(zip(tape.gradient(scaled, w), w, strict=True))
            return loss

        return step

    return make


def scaled_by_hand():
    """A loss scale that halves where a gradient is not finite, and an update that is left out."""
    w, scale = two_layers(), tf.Variable(1024.0, name="scale")

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses(w, x, y)) * scale
        gradients = [gradient / scale for gradient in tape.gradient(loss, w)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        for variable, gradient in zip(w, gradients, strict=True):
            variable.assign_sub(tf.where(finite, 0.3 * gradient, 0.0))
        scale.assign(tf.where(finite, scale * 2, scale / 2))
        return loss / scale

    return step


def accumulated():
    """Gradients of two steps, then an update."""
    w, sums, count = matrix(FEATURES, CLASSES), matrix(FEATURES, CLASSES), tf.Variable(0)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ w))
        sums.assign_add(tape.gradient(loss, w))
        is_due = tf.cast(count.assign_add(1) % 2 == 0, tf.float32)
        w.assign_sub(0.3 * is_due * sums)
        sums.assign(sums * (1 - is_due))
        return loss

    return step


def averaged():
    """A moving average of a variable, and one of the images."""
    w, average, center = matrix(FEATURES), matrix(FEATURES), matrix(FEATURES)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x - center, w)))
        w.assign_sub(0.3 * tape.gradient(loss, w))
        average.assign(0.9 * average + 0.1 * w)
        center.assign_sub(0.1 * (center - tf.reduce_mean(x, 0)))
        return loss

    return step


def counted():
    """How many entries were seen, and their running mean."""
    seen, mean = tf.Variable(1, dtype=tf.int64, name="seen"), matrix(FEATURES)

    def step(x, y):
        count = tf.shape(x, tf.int64)[0]
        before, after = (tf.cast(n, tf.float32) for n in (seen, seen + count))
        mean.assign((mean * before + tf.reduce_sum(x, 0)) / after)
        seen.assign_add(count)
        return tf.reduce_sum(mean)

    return step


def measured(metrics):
    """Metrics that a step updates."""

    def make():
        w, made = two_layers(), metrics()
        for metric in made:
            metric.update_state(tf.constant([0, 1]), tf.one_hot([0, 1], CLASSES))

        def step(x, y):
            chances = tf.nn.softmax(tf.tanh(x @ w[0]) @ w[1])
            for metric in made:
                metric.update_state(y, chances)
            return tf.add_n([tf.cast(metric.result(), tf.float32) for metric in made])

        return step

    return make


def of_rows(change):
    """Sparse gradients of a table."""

    def make():
        table = matrix(CLASSES, FEATURES, name="table")
        optimizer = tf_keras.optimizers.legacy.Adam(0.1)
        optimizer._create_all_weights([table])

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.gather(table, y) - x))
            optimizer.apply_gradients([(change([tape.gradient(loss, table)])[0], table)])
            return loss

        return step

    return make


def clipped_by_entry():
    """Each entry's own gradient is clipped, as for private training."""
    w = matrix(FEATURES, CLASSES)

    def step(x, y):
        slopes = tf.nn.softmax(x @ w) - tf.one_hot(y, CLASSES)
        gradients = tf.clip_by_norm(x[:, :, None] * slopes[:, None, :], 0.5, axes=[1, 2])
        w.assign_sub(tf.reduce_sum(gradients, 0) / tf.cast(tf.shape(x)[0], tf.float32))
        return tf.reduce_mean(tf.norm(gradients, axis=[1, 2]))

    return step

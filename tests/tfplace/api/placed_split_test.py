"""A step of this process, split and placed: it trains as the unsplit one does."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace

QUICK = {"cluster": "k80x2", "max_trials": 2, "budget_seconds": 2.0, "algorithm": "single"}
QUICK |= {"verify": "structure", "shards": 2}
X = np.random.default_rng(0).random((10, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def test_a_function():
    weight = tf.Variable(tf.ones((3, 1)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    placed = tfplace.place(step, (X[:5], Y[:5]), **QUICK)
    batches = [(X[:5], Y[:5]), (X[5:], Y[5:]), (X[:7], Y[:7])]  # the last has another shape
    losses = [float(placed(*batch)) for batch in batches]
    placed.sync()
    trained = weight.numpy()
    weight.assign(tf.ones((3, 1)))
    assert losses == pytest.approx([float(step(*batch)) for batch in batches], rel=1e-5)
    np.testing.assert_allclose(trained, weight.numpy(), rtol=1e-5)


def test_a_keras_model():
    def made():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(2, "relu"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), "mse")
        return model

    one, other = made(), made()
    placed = tfplace.place(other, (X[:4], Y[:4]), **QUICK)
    wanted = one.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    found = placed.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(found.history["loss"], wanted.history["loss"], rtol=1e-4)
    for before, after in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-6)


def test_auto_decides_once_for_all_shapes_and_is_compared_with_the_unsplit_step():
    weight = tf.Variable(tf.eye(48))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for _ in range(4):  # so much to compute for so few weights that splitting pays
                y = tf.tanh(y @ weight)
            loss = tf.reduce_mean(y)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    x = np.random.default_rng(0).random((20_000, 48)).astype(np.float32)
    options = {**QUICK, "shards": "auto", "max_trials": 20, "budget_seconds": 60.0}
    placed = tfplace.place(step, (x,), **options)
    report = placed.report
    assert report.split["shards"] > 1
    tried = {each.shards: each for each in report.shards_tried}
    assert report.baselines["single"].step_seconds == tried[1].single_seconds
    assert f"{report.best.step_seconds / tried[1].single_seconds:.3f}" in report.verdict_sentence
    losses = [float(placed(each)) for each in (x, x[:7])]
    placed.sync()
    trained = weight.numpy()
    weight.assign(tf.eye(48))
    assert losses == pytest.approx([float(step(each)) for each in (x, x[:7])], rel=1e-5)
    np.testing.assert_allclose(trained, weight.numpy(), rtol=1e-4, atol=1e-7)

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


@pytest.mark.parametrize("is_open", [False, True])
def test_a_batch_of_fewer_entries_than_shards_runs_whole(is_open):
    """It changes the same variables, once; so do inputs that aren't the batch that was split."""
    weight, count = tf.Variable(tf.ones((3, 1))), tf.Variable(0)
    specs = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])] if is_open else None

    @tf.function(input_signature=specs)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        count.assign_add(1)
        return loss

    placed = tfplace.place(step, (X[:6], Y[:6]), **QUICK | {"shards": 3})
    assert placed.report.split["shards"] == 3
    batches = [(X[:6], Y[:6]), (X[:2], Y[:2]), (X[3:4], Y[3:4]), (X[:6], Y[:1]), (X[6:], Y[6:])]
    batches += batches[1:3]  # a second time
    losses = [float(placed(*batch)) for batch in batches]
    placed.sync()
    trained = weight.numpy()
    assert int(count) == len(batches)
    weight.assign(tf.ones((3, 1)))
    assert losses == pytest.approx([float(step(*batch)) for batch in batches], rel=1e-5)
    np.testing.assert_allclose(trained, weight.numpy(), rtol=1e-5)


def test_other_shapes_keep_no_second_copy_of_the_weights():
    weight = tf.Variable(tf.ones((3, 1)))
    placed = tfplace.place(
        lambda x: weight.assign_add(tf.ones((3, 1)))[0, 0] * x.shape[0],
        (tf.ones(3),),
        **QUICK | {"shards": 1},
    )
    assert float(placed(tf.ones(1))) == 2.0
    (copy,) = placed._placings._all[1].loaded.placed_variables
    assert copy.read_value().shape == [0]
    assert [float(placed(tf.ones(size))) for size in (1, 3)] == [3.0, 12.0]

"""`step.fit` trains as `model.fit` does: losses, weights, callbacks, validation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfplace

QUICK = {"cluster": "k80x2", "max_trials": 2, "budget_seconds": 2.0, "algorithm": "single"}
QUICK |= {"verify": "structure"}
X = np.random.default_rng(0).random((10, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def each_step(package, weights):
    """A callback that sets the learning rate at a step, and keeps what an epoch's end sees."""

    def set_rate(batch, logs=None):
        callback.model.optimizer.learning_rate.assign(0.1 / (1 + batch))

    callback = package.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs=None: weights.extend(callback.model.get_weights())
    )
    callback.on_train_batch_begin = set_rate
    return callback


def made(package):
    package.utils.set_random_seed(1)
    layers = package.layers
    model = package.Sequential([layers.Input((3,)), layers.Dense(2, "relu"), layers.Dense(1)])
    model.compile(package.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    return model


def trained(package, fit, **keywords):
    weights = []
    seen = each_step(package, weights)
    history = fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0,
                  validation_data=(X, Y), callbacks=seen, **keywords)  # fmt: skip
    return history.history, weights


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_fit_with_a_placed_step_is_fit(package):
    wanted, expected = made(package), made(package)
    history, weights = trained(package, expected.fit)
    step = tfplace.place(wanted, (X[:4], Y[:4]), batch_sizes=[2], **QUICK)
    found = trained(package, step.fit)
    assert set(found[0]) == {"loss", "mae", "val_loss", "val_mae"}
    for name in history:
        assert found[0][name] == pytest.approx(history[name], rel=1e-4), name
    for one, other in zip(found[1], weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert int(wanted.optimizer.iterations) == int(expected.optimizer.iterations) == 6
    # Afterwards the model is its own again, and the step has its values.
    again = [model.fit(X[:4], Y[:4], batch_size=4, shuffle=False, verbose=0).history["loss"]
             for model in (wanted, expected)]  # fmt: skip
    assert again[0] == pytest.approx(again[1], rel=1e-4)
    wanted.compile("sgd", "mse")
    with pytest.raises(tfplace.TfplaceError, match="place it again"):
        step.fit(X, Y)


def test_data_sets_of_unknown_size_and_several_steps_at_once():
    model = made(keras)
    model.compile("sgd", "mse", steps_per_execution=2)
    step = tfplace.place(model, (X[:5], Y[:5]), **QUICK)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).filter(lambda x, y: True)
    assert len(step.fit(batches, epochs=2, shuffle=False, verbose=0).history["loss"]) == 2
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("is_scaled", [False, True])
def test_gradients_that_are_accumulated_over_several_steps(is_scaled):
    """Keras computes what it calls `iterations` of its own counter then."""

    def accumulating():
        model = made(keras)
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        if is_scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=16.0)
        model.compile(optimizer, "mse")
        return model

    wanted, expected = accumulating(), accumulating()
    step = tfplace.place(wanted, (X[:5], Y[:5]), **QUICK)
    found = [fit(X, Y, batch_size=5, shuffle=False, epochs=3, verbose=0).history["loss"]
             for fit in (step.fit, expected.fit)]  # fmt: skip
    assert found[0] == pytest.approx(found[1], rel=1e-4)

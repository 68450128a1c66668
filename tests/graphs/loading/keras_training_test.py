"""Compiled Keras files train with their own loss and optimizer."""

import os

import keras
import numpy as np
import pytest
import tf_keras

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from tests.graphs.loading import model_files

X = np.array([[1, 2, 3, 4], [0, 1, 0, 1]], np.float32)


def _compiled(framework, loss, optimizer, num_outputs=1):
    inputs = framework.Input((4,), name="features")
    layers = framework.layers
    outputs = [layers.Dense(3, kernel_initializer="ones")(inputs) for _ in range(num_outputs)]
    model = framework.Model(inputs, outputs if num_outputs > 1 else outputs[0])
    model.compile(optimizer, loss)
    return model


def _feeds(model, **values):
    named = {spec.tensor: spec.tensor.partition("train_step_")[2][:-2] for spec in model.feeds}
    return {tensor: values[name] for tensor, name in named.items()}


@pytest.mark.parametrize("framework", [keras, tf_keras])
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_a_compiled_file_trains_with_its_own_loss_and_optimizer(framework, ending, tmp_path):
    path = tmp_path / f"model.{ending}"
    _compiled(framework, "mse", framework.optimizers.SGD(0.01)).save(path)
    model = load(path, LoadOptions(batch_size=2))
    assert (model.kind, model.mode, model.step_origin) == ("keras", "train", "signature train_step")
    (sentence,) = model.guessed
    assert sentence.startswith("its training step is the compiled model's own: loss m")
    assert sentence.endswith(", optimizer SGD")
    feeds = _feeds(model, features=X, y=np.zeros((2, 3), np.float32))
    losses = [values[0] for values in model_files.run(model, feeds, times=2)]
    y = X @ np.ones((4, 3), np.float32)  # 10 and 2
    np.testing.assert_allclose(losses[0], np.mean(y**2))
    w, b = 1 - 0.01 * X.T @ (2 * y / 6), -0.01 * np.sum(2 * y / 6, axis=0)
    np.testing.assert_allclose(losses[1], np.mean((X @ w + b) ** 2), rtol=1e-5)


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_an_optimizer_that_scales_the_loss_takes_the_step_of_one_that_does_not(framework, tmp_path):
    plain = framework.optimizers.SGD(0.01)
    if framework is keras:
        scaled = [
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)),
            keras.optimizers.SGD(0.01, loss_scale_factor=8.0),
        ]
    else:
        scaled = [tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.SGD(0.01))]
    losses = []
    for number, optimizer in enumerate([plain, *scaled]):
        path = tmp_path / f"{number}.keras"
        _compiled(framework, "mse", optimizer).save(path)
        model = load(path, LoadOptions(batch_size=2))
        feeds = _feeds(model, features=X, y=np.zeros((2, 3), np.float32))
        losses.append([values[0] for values in model_files.run(model, feeds, times=2)])
    assert losses[0][1] < 0.9 * losses[0][0]
    for each in losses[1:]:
        np.testing.assert_allclose(each, losses[0], rtol=1e-5)


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_inputs_outputs_and_losses_by_name(framework, tmp_path):
    inputs = {name: framework.Input((4,), name=name) for name in ("user", "item")}
    layers = framework.layers
    outputs = {
        "rating": layers.Dense(3, kernel_initializer="ones", name="rating")(inputs["user"]),
        "click": layers.Dense(2, kernel_initializer="zeros", name="click")(inputs["item"]),
    }
    made = framework.Model(inputs, outputs)
    made.compile(framework.optimizers.SGD(0.01), {"rating": "mse", "click": "mae"})
    made.save(tmp_path / "model.keras")
    model = load(tmp_path / "model.keras", LoadOptions(batch_size=2))
    assert model.guessed[0].startswith("its training step is the compiled model's own: loss m")
    targets = {"y_0": np.ones((2, 2), np.float32), "y_1": np.zeros((2, 3), np.float32)}
    feeds = _feeds(model, user=X, item=X, **targets)
    (loss,) = model_files.run(model, feeds, times=1)[0]
    np.testing.assert_allclose(loss, 1 + np.mean((X @ np.ones((4, 3))) ** 2))


def test_a_sparse_loss_is_fed_whole_numbers_and_several_outputs_one_target_each(tmp_path):
    losses = ["sparse_categorical_crossentropy", keras.losses.MeanSquaredError()]
    path = tmp_path / "model.keras"
    _compiled(keras, losses, "adam", num_outputs=2).save(path)
    model = load(path, LoadOptions(batch_size=2))
    assert model.guessed[0].endswith(
        "loss sparse_categorical_crossentropy, mean_squared_error, optimizer Adam"
    )
    specs = {(spec.dtype, spec.shape) for spec in model.feeds}
    assert specs == {("float32", (2, 4)), ("int64", (2,)), ("float32", (2, 3))}


def test_a_sequential_model_whose_optimizer_was_never_used(tmp_path, recwarn):
    layers = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    assert load(tmp_path / "model.keras", LoadOptions(batch_size=2)).mode == "train"
    assert not [str(each.message) for each in recwarn if "Skipping" in str(each.message)]


@keras.saving.register_keras_serializable("tests")
class _Odd(keras.losses.Loss):
    def call(self, y_true, y_pred):
        raise ValueError("no target is good enough")


def test_a_loss_that_can_not_be_used_leaves_inference_and_says_why(tmp_path):
    path = tmp_path / "model.keras"
    _compiled(keras, _Odd(), "sgd").save(path)
    model = load(path, LoadOptions(batch_size=2))
    assert model.mode == "inference"
    assert "its own training step can't be made: " in model.guessed[0]
    assert load(path, LoadOptions(mode="inference", batch_size=2)).mode == "inference"


@keras.saving.register_keras_serializable("keras_training_test")
class _Counted(keras.layers.Layer):
    trained = 0

    def call(self, x, training=None):
        _Counted.trained += bool(training)
        return x


def test_a_step_is_traced_once(tmp_path):
    path = str(tmp_path / "model.keras")
    model = keras.Sequential([keras.Input((4,)), _Counted(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.save(path)
    _Counted.trained = 0
    assert load(path, LoadOptions(batch_size=2)).mode == "train"
    assert _Counted.trained == 1


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_a_large_batch_is_traced_and_not_run(framework, tmp_path, monkeypatch):
    """Its activations are 4 TB: what makes the loss' and the optimizer's variables runs nothing."""
    inputs = framework.Input(batch_shape=(2**20, 4))
    model = framework.Model(inputs, framework.layers.Dense(2**20)(inputs))
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    model = load(tmp_path / "model.keras")
    assert (model.mode, model.step_origin) == ("train", "signature train_step")
    assert len([v for v in model.variables if v.shape == (4, 2**20)]) >= 3  # and two of Adam's


def test_reading_a_file_leaves_the_environment_as_it_is(tmp_path, monkeypatch):
    """Children are forked only where the variables that Keras and TensorFlow read are the same."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    before = dict(os.environ)
    _compiled(keras, "mse", "sgd").save(tmp_path / "model.keras")
    load(tmp_path / "model.keras", LoadOptions(batch_size=2))
    assert dict(os.environ) == before


@pytest.mark.parametrize("is_scaled", [False, True])
def test_an_h5_file_of_an_older_keras_trains_with_its_legacy_optimizer(is_scaled, tmp_path):
    path = str(tmp_path / "old.h5")
    optimizer = tf_keras.optimizers.legacy.SGD(0.01, momentum=0.5)
    if is_scaled:
        optimizer = tf_keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=8.0)
    model = _compiled(tf_keras, "mse", optimizer)
    y = np.zeros((2, 3), np.float32)
    model.save(path)
    found = load(path, LoadOptions(batch_size=2))
    (sentence,) = found.guessed
    assert found.mode == "train" and ", optimizer " in sentence
    feeds = _feeds(found, features=X, y=y)
    losses = [values[0] for values in model_files.run(found, feeds, times=3)]
    np.testing.assert_allclose(losses, [model.train_on_batch(X, y) for _ in range(3)], rtol=1e-5)

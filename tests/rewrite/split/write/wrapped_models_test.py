"""A SavedModel that holds loaded ones is split: they keep their own signatures."""

import numpy as np
import pytest
import tensorflow as tf

from tests.rewrite.split.split_model_test import _emitted

X = tf.TensorSpec([6, 3], name="x")


class Inner(tf.Module):
    """A layer that is trained."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([3, 2]))

    @tf.function(input_signature=[X])
    def train_step(self, x):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.w) ** 2)
        self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
        return {"loss": loss}


class Outer(tf.Module):
    """Whatever it wraps, behind other preprocessing; the loaded model is found first."""

    def __init__(self, inner):
        super().__init__()
        self.a_loaded_model = inner

    @tf.function(input_signature=[X])
    def train_step(self, x):
        """One step of the model inside."""
        return self.a_loaded_model.signatures["train_step"](x=x * 2.0)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_model_that_was_loaded_and_wrapped(depth, tmp_path):
    model = Inner()
    for number in range(depth + 1):
        path = str(tmp_path / f"given_{number}")
        tf.saved_model.save(model, path, signatures={"train_step": model.train_step})
        model = Outer(tf.saved_model.load(path))
    _, emitted = _emitted(path, tmp_path / "split", 2)
    x = tf.constant(np.random.default_rng(0).normal(size=X.shape), tf.float32)
    loaded = {name: tf.saved_model.load(name) for name in (path, emitted)}
    losses = [
        [float(each.signatures["train_step"](x=x)["loss"]) for _ in range(3)]
        for each in loaded.values()
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert set(loaded[emitted].signatures) == {"train_step", "train_step_whole"}
    assert set(loaded[emitted].a_loaded_model.signatures) == {"train_step"}

"""Training steps made for models that came without one."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.errors import ModelError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from tests.graphs.loading import model_files


class _Layer(tf.Module):
    """A function of w, saved with a signature."""

    def __init__(self, function, shape=(4, 3)):
        super().__init__()
        self.w = tf.Variable(np.full(shape, 0.5, np.float32), name="w")
        self.frozen = tf.Variable(np.ones(3, np.float32), name="frozen", trainable=False)
        self.function = function

    def save(self, path, spec):
        serve = tf.function(lambda x: {"y": self.function(self, x)}, input_signature=[spec])
        tf.saved_model.save(self, str(path), signatures={"serving_default": serve})


TRAIN = LoadOptions(mode="train")
FLOATS = tf.TensorSpec([2, 4])
X = np.array([[1, 2, 3, 4], [0, 1, 0, 1]], np.float32)


def _steps(path, feed, times=2):
    model = load(path, TRAIN)
    values = model_files.run(model, {"serving_default_x:0": feed}, times)
    return model, [value[0] for value in values]


def test_only_trainable_variables_are_updated(tmp_path):
    _Layer(lambda self, x: x @ self.w * self.frozen).save(tmp_path, FLOATS)
    model, losses = _steps(tmp_path, X)
    updates = [n for n in model.graph_def.node if n.op == "ResourceApplyGradientDescent"]
    assert [node.input[0] for node in updates] == ["w"]
    assert losses[1] < losses[0]


def test_embedding_rows_are_updated_sparsely(tmp_path):
    layer = _Layer(lambda self, x: tf.gather(self.w, x), (5, 3))
    layer.save(tmp_path, tf.TensorSpec([2], tf.int32))
    model, losses = _steps(tmp_path, np.array([4, 4], np.int32))
    assert [n.input[0] for n in model.graph_def.node if n.op == "ResourceScatterSub"] == ["w"]
    # y = 0.5 twice over: dL/dw row 4 = 2 * (2 * 0.5 / 6); w - 0.01 of it.
    np.testing.assert_allclose(losses, [0.25, (0.5 - 0.01 / 3) ** 2], rtol=1e-6)


def test_loops_and_branches_are_differentiated(tmp_path):
    def function(self, x):
        y = x @ self.w
        for _ in tf.range(3):
            y = tf.tanh(y) * self.w[0]
        if tf.reduce_sum(y) > 0:
            y = y * 2.0
        return y

    _Layer(tf.autograph.to_graph(function)).save(tmp_path, FLOATS)
    _, losses = _steps(tmp_path, X)
    assert losses[1] < losses[0]


def test_custom_gradients_of_another_process_are_replaced_by_natural_ones(tmp_path):
    @tf.custom_gradient
    def double(x):
        return x * 2.0, lambda upstream: upstream * 2.0

    _Layer(lambda self, x: double(x @ self.w)).save(tmp_path, FLOATS)
    assert b"CustomGradient-" in (tmp_path / "saved_model.pb").read_bytes()
    _, losses = _steps(tmp_path, X)
    y = 2 * X @ np.full((4, 3), 0.5, np.float32)
    np.testing.assert_allclose(losses[0], np.mean(y**2), rtol=1e-6)
    w = 0.5 - 0.01 * 2 * X.T @ (2 * y / 6)
    np.testing.assert_allclose(losses[1], np.mean((2 * X @ w) ** 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda self, x: tf.argmax(x @ self.w, 1), "it has no float output"),
        (lambda self, x: x * 2.0, "its run reads no trainable variable"),
        (lambda self, x: tf.round(x @ self.w), "no float output depends on a trainable variable"),
        (
            lambda self, x: tf.cast(
                tf.strings.length(tf.strings.as_string(x @ self.w)), tf.float32
            ),
            "no float output depends on a trainable variable",
        ),
    ],
)
def test_where_no_step_can_be_made(tmp_path, function, reason):
    _Layer(function).save(tmp_path, FLOATS)
    model = load(tmp_path)
    assert (model.mode, model.step_origin) == ("inference", "signature serving_default")
    assert model_files.run(model, {"serving_default_x:0": X})
    with pytest.raises(ModelError, match=reason):
        load(tmp_path, TRAIN)


def test_the_model_stays_whole_beside_the_step(tmp_path):
    layer = _Layer(lambda self, x: x @ self.w)
    layer.save(tmp_path, FLOATS)
    model = load(tmp_path, TRAIN)
    original = {node.name for node in model.meta_graph_def.graph_def.node}
    assert original <= {node.name for node in model.graph_def.node}
    flat = flatten(model.graph_def, model.feeds, model.fetches)
    assert {origin.function for origin in flat.origins} == {""}
    made = {node.name for node in flat.graph_def.node} - set(model.origins)
    assert made and all(name.startswith("train_step/") for name in made)
    functions = {f.signature.name for f in model.meta_graph_def.graph_def.library.function}
    assert functions <= {f.signature.name for f in model.graph_def.library.function}

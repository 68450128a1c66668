"""What is fed to a run, told by a user's file."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import FeedError, ModelError
from graphs.loading.load_options import LoadOptions
from tfplace.preparing.loaded_model import load_model
from tfplace.preparing.options import ProblemOptions


@pytest.fixture
def two_inputs(tmp_path):
    """A GraphDef of two inputs of any batch, each of two entries a row."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        a, b = (v1.placeholder(tf.float32, [None, 2], name=name) for name in "ab")
        tf.add(a, b, name="sum")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


def _loaded(model, folder, **arrays):
    path = str(folder / "feed.npz")
    np.savez(path, **{name: np.ones(shape, np.float32) for name, shape in arrays.items()})
    return load_model(ProblemOptions(model, fed=path))


def test_arrays_that_do_not_fit_are_told_before_shapes_are_inferred(two_inputs, tmp_path):
    assert _loaded(two_inputs, tmp_path, a=(3, 2), b=(3, 2)).feeds["a:0"].shape == (3, 2)
    with pytest.raises(FeedError, match=r"feed.npz': 'b:0' has shape \[3, 5\], wanted \[32, 2\]"):
        _loaded(two_inputs, tmp_path, a=(3, 2), b=(3, 5))


@pytest.mark.parametrize("num_shards", [1, 2])
def test_an_array_may_have_the_name_of_a_signatures_argument(num_shards, tmp_path):
    class Model(tf.Module):
        def __init__(self):
            self.weight = tf.Variable(tf.ones([3, 1]))

        @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(x @ self.weight)
            self.weight.assign_sub(tape.gradient(loss, self.weight))
            return {"loss": loss}

    model, path = Model(), str(tmp_path / "feed.npz")
    tf.saved_model.save(model, tmp_path / "model", signatures={"train_step": model.train_step})
    np.savez(path, x=np.full((6, 3), 7, np.float32))
    options = ProblemOptions(str(tmp_path / "model"), fed=path, num_shards=num_shards)
    (fed,) = load_model(options).feeds.values()
    assert fed.shape == (6, 3) and fed[0, 0] == 7


def _reshaped(folder, build, shape):
    """A GraphDef of what `build` makes of an input."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        build(v1.placeholder(tf.float32, shape, name="x"))
    path = folder / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


@pytest.mark.parametrize(
    ("build", "shape", "taken"),
    [
        (lambda x: tf.reshape(x, [6, -1]), [None, 5], (60, 5)),
        (lambda x: x + tf.ones([7, 5]), [None, 5], (7, 5)),
        (lambda x: tf.nn.conv1d(x, tf.ones([50, 3, 4]), 1, "VALID"), [2, None, 3], (2, 64, 3)),
        (lambda x: tf.reshape(x, [105, -1]), [None, 1], (840, 1)),
    ],
)
def test_other_sizes_are_guessed_where_the_first_do_not_fit(build, shape, taken, tmp_path):
    source = load_model(ProblemOptions(_reshaped(tmp_path, build, shape))).source
    assert source.feeds[0].shape == taken
    *_, said, why = source.guessed
    assert said.endswith(f"unknown, taken as {max(set(taken) - set(shape))}")
    assert why.startswith("other sizes first: no size is given (input x: dimension ")
    assert len(why) < 250 and " refuses: " in why


def test_sizes_that_no_guess_fits_are_told_in_a_line(tmp_path):
    model = _reshaped(tmp_path, lambda x: tf.reshape(x, [100_003, -1]), [None, 5])
    with pytest.raises(FeedError) as found:
        load_model(ProblemOptions(model))
    said = str(found.value)
    assert "no size is given (input x: dimension 0 unknown, taken as 32), which 'Reshape'" in said
    assert len(said) < 350 and said.endswith("say --batch_size=... or --input_shape NAME=...")
    with pytest.raises(ModelError, match=r"'Reshape' \(Reshape\) refuses: .* --batch_size"):
        load_model(ProblemOptions(model, load=LoadOptions(batch_size=33)))


def test_an_input_that_nothing_reads_may_be_given(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([2], name="x"), tf.TensorSpec([2], name="y")])
    def step(x, y):
        return {"out": 2 * x}

    tf.saved_model.save(tf.Module(), tmp_path / "model", signatures={"train_step": step})
    given = {name: np.ones(2, np.float32) for name in "xy"}
    feeds = load_model(ProblemOptions(str(tmp_path / "model"), fed=given)).feeds
    assert "train_step_x:0" in feeds
    with pytest.raises(FeedError, match="no input 'z'"):
        load_model(ProblemOptions(str(tmp_path / "model"), fed={**given, "z": given["x"]}))

"""What is fed to a run, told by a user's file."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import FeedError
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

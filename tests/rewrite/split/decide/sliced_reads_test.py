"""What only parts are wanted of is made in parts."""

import numpy as np
import pytest
import tensorflow as tf

from rewrite.split.decision import Split
from tests.rewrite.split.run_step import flat_graph, run, split_step

v1 = tf.compat.v1
BATCH = 5
X = np.random.default_rng(2).normal(size=(BATCH, 3, 4)).astype(np.float32)
W = np.ones((2, 4), np.float32)
ROW = np.arange(4, dtype=np.float32)

# {name: what is made of x, with a whole tensor that only its parts need}
WANTED_IN_PARTS = {
    "fill": lambda x: x * tf.exp(tf.fill([BATCH, 3, 4], 2.0, name="made")),
    "broadcast": lambda x: x * tf.tanh(tf.broadcast_to(ROW, [BATCH, 3, 4], name="made")),
    "tile": lambda x: x + tf.tile(ROW[None, None], [BATCH, 3, 1], name="made"),
    "reshaped": lambda x: x + tf.reshape(tf.fill([BATCH * 3, 4], 2.0, name="made"), [BATCH, 3, 4]),
    "a product of zeros": lambda x: x[:, 0] + tf.matmul(tf.fill([BATCH, 2], 2.0, name="made"), W),
    "a product, transposed": lambda x: (
        x[:, 0] + tf.matmul(tf.fill([2, BATCH], 2.0, name="made"), W, transpose_a=True)
    ),
    "mean's gradient": lambda x: tf.gradients(tf.reduce_mean(tf.tanh(x)) ** 2, x)[0],
    "comparison": lambda x: tf.where(tf.fill([BATCH, 3, 4], 1.0, name="made") > 0.5, x, 0.0),
}


def split_of(build):
    with tf.Graph().as_default() as graph:
        result = build(v1.placeholder(tf.float32, X.shape, "x"))
    flat = flat_graph(graph, {"x:0": X}, [result.name])
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    whole, _ = run(flat.graph_def, flat.fetches, {"x:0": X})
    parts, _ = run(split.graph_def, split.fetches, {"x:0": X})
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5, atol=1e-7)
    return flat, decisions, split


@pytest.mark.parametrize("name", WANTED_IN_PARTS)
def test_nothing_is_cut_but_what_is_fed(name):
    _, decisions, split = split_of(WANTED_IN_PARTS[name])
    assert split.num_cuts == (2 if name == "comparison" else 1)
    if name != "mean's gradient":
        assert isinstance(decisions.answer_of_op["made"], Split) == (name != "comparison")


def test_what_may_be_as_long_as_the_batch_is_not_taken_for_stretched():
    """Behind a loop over the entries TensorFlow doesn't know how many there are."""

    def build(x):
        unknown = v1.placeholder_with_default(np.tanh(X), [None, 3, 4])
        return x * tf.add(unknown, tf.fill([BATCH, 3, 4], 2.0), name="made")

    _, decisions, _ = split_of(build)
    assert not isinstance(decisions.answer_of_op["made"], Split)


def test_what_is_read_whole_too_stays_whole():
    def build(x):
        made = tf.fill([BATCH, 3, 4], 2.0, name="made")
        return x * made + tf.reduce_sum(tf.cumsum(made, 0))

    _, decisions, _ = split_of(build)
    assert not isinstance(decisions.answer_of_op["made"], Split)


def test_a_gradients_constant_waits_for_its_own_shard():
    """TensorFlow makes such constants wait for what they are the gradient of."""

    def build(x):
        middle = tf.tanh(x, name="middle")
        with tf.control_dependencies([middle]):
            two = tf.constant(2.0, name="two")
        return middle * two

    _, _, split = split_of(build)
    waits = {node.name: list(node.input) for node in split.graph_def.node if node.op == "Const"}
    for shard in range(2):
        assert waits[f"two/shard_{shard}"] == [f"^middle/shard_{shard}"]


def test_what_is_random_is_drawn_once():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, X.shape, "x")
        mask = tf.random.uniform(X.shape, seed=3) > 0.5
        tf.multiply(x, tf.cast(mask, tf.float32), name="dropped")
    flat = flat_graph(graph, {"x:0": X}, ["dropped:0"])
    _, split = split_step(flat, BATCH, 2, {"x:0": 0})
    types = [node.op for node in split.graph_def.node]
    assert types.count("RandomUniform") == types.count("GreaterEqual") + types.count("Greater") == 1
    assert types.count("Cast") == 2  # what travels are the truth values


def test_what_a_whole_op_makes_is_cut_again():
    def build(x):
        return tf.tanh(tf.cumsum(x, 0, name="whole"), name="split")

    _, decisions, split = split_of(build)
    assert not isinstance(decisions.answer_of_op["whole"], Split)
    assert isinstance(decisions.answer_of_op["split"], Split)
    assert split.num_cuts == 2


def test_what_has_as_many_rows_as_values_are_distinct_is_not_cut():
    """An optimizer adds up the rows of a gradient that belong to the same row of a table."""

    def build(x):
        rows, row_of_entry = tf.unique(tf.cast(x[:, 0, 0] > 0.0, tf.int32))
        sums = tf.math.unsorted_segment_sum(x, row_of_entry, tf.shape(rows)[0])
        return tf.square(sums, name="read")

    _, decisions, _ = split_of(build)
    assert not isinstance(decisions.answer_of_op["read"], Split)

"""Loops over time with their bodies: a split step computes the same; what can't be split says why.

Batches are of five entries, which neither two nor three shards divide.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from rewrite.split.decision import Split
from tests.rewrite.split.run_step import assert_same_steps, run, split_open_step, split_step
from tests.rewrite.split.traced_steps import FEATURES, STEPS, UNITS, flat_step, keras_step

BATCH = 5


def lstm(library):
    return [library.layers.LSTM(UNITS)]


def gru(library):
    return [library.layers.GRU(UNITS)]


def masked(library):
    layers = library.layers
    return [layers.Masking(), layers.Bidirectional(layers.LSTM(UNITS))]


def masked_only(library):
    return [library.layers.Masking(), library.layers.LSTM(UNITS)]


def stacked(library):
    layers = library.layers
    return [
        layers.RNN(layers.GRUCell(UNITS), return_sequences=True),
        layers.SimpleRNN(UNITS, go_backwards=True),
    ]


def whole_loops(decisions, flat):
    return {
        node.name: decisions.answer_of_op[node.name].reason
        for node in flat.graph_def.node
        if node.name in flat.unit_of_node
        and not isinstance(decisions.answer_of_op[node.name], Split)
    }


def feeds_of(flat, batch=BATCH):
    rng = np.random.default_rng(2)
    feeds = {
        spec.tensor: rng.normal(size=(batch, *spec.shape[1:])).astype(spec.dtype)
        for spec in flat.feeds
    }
    for array in feeds.values():
        if array.ndim == 3:
            array[1:4, 1:] = 0.0  # masked
    return feeds


def assert_the_same(flat, num_shards):
    feeds = feeds_of(flat)
    decisions, split = split_step(flat, BATCH, num_shards, dict.fromkeys(feeds, 0))
    assert whole_loops(decisions, flat) == {}
    assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)
    return split


@pytest.mark.parametrize(
    ("library", "layers", "batch", "num_shards"),
    [(tf_keras, gru, BATCH, 2), (tf_keras, masked_only, None, 3), (keras, masked, BATCH, 2),
     (keras, stacked, None, 3)],
    ids=["tf_keras gru", "tf_keras masked", "keras masked", "keras stacked"],
)  # fmt: skip
def test_recurrent_networks(library, layers, batch, num_shards):
    flat = keras_step(library, layers(library), batch, BATCH)
    split = assert_the_same(flat, num_shards)
    assert split.num_joins == 0


def convolutional_lstm(library):
    layers = library.layers
    return [
        layers.Reshape((STEPS, FEATURES, 1, 1)),
        layers.ConvLSTM2D(1, 2, padding="same"),
        layers.Flatten(),
    ]


@pytest.mark.parametrize(
    ("library", "layers"),
    [(tf_keras, lstm), (keras, lstm), (keras, convolutional_lstm)],
    ids=["tf_keras", "keras", "keras convolutions"],
)
def test_any_batch_size(library, layers):
    flat = keras_step(library, layers(library), None, BATCH)
    axes = {spec.tensor: 0 for spec in flat.feeds}
    decisions, split = split_open_step(flat, BATCH, 3, axes)
    assert whole_loops(decisions, flat) == {}
    for batch in (3, 8):
        feeds = feeds_of(flat, batch)
        assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)


def loop_step(body, shape=(BATCH, FEATURES)):
    """A training step whose model runs `body(x, weight)` STEPS times."""
    weight = tf.Variable(tf.ones((shape[-1], shape[-1])), name="weight")

    def step(x):
        with tf.GradientTape() as tape:
            _, y = tf.while_loop(
                lambda i, _: i < STEPS, lambda i, y: (i + 1, body(y, weight)), (0, x)
            )
            loss = tf.reduce_mean(y)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss, y

    return flat_step(step, [tf.TensorSpec(shape, tf.float32, "x")], BATCH)


BODIES = {
    "an accumulated gradient": lambda y, w: tf.tanh(tf.matmul(y, w)),
    "a constant with the batch in it": lambda y, w: tf.tanh(y @ w) * np.eye(BATCH, FEATURES),
    "sizes by number": lambda y, w: tf.reshape(tf.reshape(y, [BATCH, 1, FEATURES]), y.shape) @ w,
}


@pytest.mark.parametrize("name", BODIES)
def test_loops_by_hand(name):
    body = BODIES[name]
    flat = loop_step(lambda y, w: tf.cast(body(y, w), tf.float32))
    assert_the_same(flat, 3)


def test_a_loop_that_reads_one_time_step_after_the_other():
    weight = tf.Variable(tf.ones((FEATURES, FEATURES)), name="weight")

    def step(x):
        with tf.GradientTape() as tape:
            _, y = tf.while_loop(
                lambda i, _: i < STEPS, lambda i, y: (i + 1, tf.tanh(y @ weight + x[:, i])),
                (0, tf.zeros([tf.shape(x)[0], FEATURES])),
            )  # fmt: skip
            loss = tf.reduce_mean(y)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    spec = tf.TensorSpec((BATCH, STEPS, FEATURES), tf.float32, "x")
    assert_the_same(flat_step(step, [spec], BATCH), 2)


SCALED = {
    "times a number": lambda total, gradient, number: total + number * gradient,
    "over a number": lambda total, gradient, number: total + gradient / number,
    "a moving mean": lambda total, gradient, number: total / number + (gradient - total) * number,
    "if there is a number": lambda total, gradient, number: (
        total + tf.math.divide_no_nan(gradient, number - number)
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_scaled_gradients_that_a_loop_accumulates(name):
    weight = tf.Variable(tf.ones((FEATURES, FEATURES)), name="weight")

    def step(x, number):
        def body(i, total, losses):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x[:, i] @ weight))
            gradient = tape.gradient(loss, weight)
            return i + 1, SCALED[name](total, gradient, number), losses + loss / number

        given = 0, tf.zeros((FEATURES, FEATURES)), 0.0
        _, total, losses = tf.while_loop(lambda i, *_: i < STEPS, body, given)
        weight.assign_sub(0.1 * total)
        return losses

    specs = [tf.TensorSpec((BATCH, STEPS, FEATURES), tf.float32, "x"),
             tf.TensorSpec((), tf.float32, "number")]  # fmt: skip
    flat = flat_step(step, specs, BATCH)
    feeds = {"x:0": feeds_of(flat)["x:0"], "number:0": np.float32(3.0)}
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert whole_loops(decisions, flat) == {}
    assert_same_steps(flat, split, feeds, variables_rtol=1e-4, variables_atol=1e-6)


REFUSED = {
    "statistics of the batch": (
        lambda y, w: (y - tf.reduce_mean(y, 0)) @ w,
        "an iteration would need parts of other shards",
    ),
    "a loop in the loop, whose gradient keeps lists of lists": (
        lambda y, w: tf.while_loop(
            lambda i, _: i < 2, lambda i, z: (i + 1, tf.tanh(z @ w)), (0, y)
        )[1],
        "an iteration would need parts of other shards (TensorListPushBack: lists in a list",
    ),
    "random numbers": (
        lambda y, w: y @ w + tf.random.normal((BATCH, FEATURES), seed=1),
        "its body has side effects or draws random numbers (RandomStandardNormal)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_that_stays_whole_says_why(name):
    body, reason = REFUSED[name]
    flat = loop_step(body)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert any(why.startswith(reason) for why in whole_loops(decisions, flat).values())
    feeds = feeds_of(flat)
    assert len(run(split.graph_def, split.fetches, feeds)[0]) == len(flat.fetches)


def test_a_list_that_two_loops_share():
    weight = tf.Variable(tf.ones((2, 2)), name="weight")

    def step(x):
        with tf.GradientTape() as tape:
            rows = tf.TensorArray(tf.float32, 4, element_shape=x.shape, clear_after_read=False)
            _, rows = tf.while_loop(
                lambda i, _: i < 3,
                lambda i, rows: (i + 1, rows.write(i, x * tf.cast(i, tf.float32))),
                (0, rows),
            )
            rows = rows.write(3, tf.ones(x.shape))
            _, y = tf.while_loop(
                lambda i, _: i < 4,
                lambda i, y: (i + 1, y + rows.read(i) @ weight),
                (0, tf.zeros(x.shape)),
            )
            loss = tf.reduce_mean(tf.square(y))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    assert_the_same(flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH), 2)


def test_a_loop_in_a_loop():
    def twice(y):
        return tf.while_loop(lambda i, _: i < 2, lambda i, z: (i + 1, tf.tanh(z)), (0, y))[1]

    def step(x):
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, twice(y)), (0, x))[1]

    assert_the_same(flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH), 3)


def test_a_conditional_in_a_loop():
    def body(i, y):
        return i + 1, tf.cond(i > 0, lambda: tf.tanh(y), lambda: y * 2.0)

    def step(x):
        return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]

    assert_the_same(flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH), 2)


def test_a_loop_that_ends_by_the_data_stays_whole():
    def step(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: (y * 2.0,), (x,))

    flat = flat_step(lambda x: step(tf.abs(x)), [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH)
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    assert list(whole_loops(decisions, flat).values()) == [
        "how often the loop runs depends on the data that is cut"
    ]
    feeds = feeds_of(flat)
    whole, parts = (run(s.graph_def, s.fetches, feeds)[0] for s in (flat, split))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-6)


def test_a_list_over_the_batch_stays_whole():
    def step(x):
        _, rows = tf.while_loop(
            lambda i, _: i < BATCH,
            lambda i, rows: (i + 1, rows.write(i, tf.tanh(x[i]))),
            (0, tf.TensorArray(tf.float32, BATCH, element_shape=(2,))),
        )
        return rows.stack()

    flat = flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH)
    feeds = feeds_of(flat)
    _, split = split_step(flat, BATCH, 2, {"x:0": 0})
    whole, parts = (run(s.graph_def, s.fetches, feeds)[0] for s in (flat, split))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-6)


def test_a_compiled_call():
    weight = tf.Variable(tf.ones((2, 3)), name="weight")

    @tf.function(jit_compile=True)
    def compiled(x, w):
        return tf.nn.softmax(tf.tanh(x @ w)), tf.reduce_mean(x)

    def step(x):
        rows, mean = compiled(x, weight)
        return tf.reduce_sum(rows, 1) * mean

    flat = flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH)
    assert flat.unit_of_node
    split = assert_the_same(flat, 3)
    assert split.num_sums == 1


def test_a_conditional_that_is_kept_whole():
    x = tf.TensorSpec((BATCH, 2), tf.float32, "x")
    branches = [tf.function(f, autograph=False).get_concrete_function(x) for f in (tf.tanh,)]

    def step(x, branch_of):
        return tf.raw_ops.StatelessCase(
            branch_index=branch_of, input=[x], Tout=[tf.float32], branches=branches * 2
        )

    flat = flat_step(lambda x: step(x, tf.constant(1)), [x], BATCH)
    assert flat.unit_of_node
    assert_the_same(flat, 2)
